"""Covariances between the positions of a sentence, in float64: Gram matrices and one Cholesky.

Shapes: G sentences of equal length, n positions, D dimensions.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import NotPositiveDefinite

CAST_ELEMENTS = 2**16
"""The most elements of a float64 copy of states, unless one sentence has more."""
JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)
"""What the diagonal gains, as a share of its mean, until a Cholesky factor exists."""
SAME_POINT = 2.0**-44
"""Squared distances below this share of the squared norms are rounding: the points are equal."""


def gram(x: Tensor) -> Tensor:
    """X Xᵀ of each sentence in float64: [G, n, D] of any dtype to [G, n, n].

    Only `x` is kept for the backward pass, and no float64 copy of more than a few sentences exists.
    """
    return _Gram.apply(x, False)


def squared_distances(x: Tensor) -> Tensor:
    """|xᵢ - xⱼ|² within each sentence in float64: [G, n, D] of any dtype to [G, n, n].

    Taken from the Gram matrix of the centred states, so that moving a sentence changes nothing.
    """
    products = _Gram.apply(x, True)
    norms = products.diagonal(dim1=-2, dim2=-1)
    sums = norms.unsqueeze(-1) + norms.unsqueeze(-2)
    distances = sums - 2 * products
    return distances.masked_fill(distances <= SAME_POINT * sums.detach(), 0.0)


class Factor(NamedTuple):
    """A covariance A with all that its Cholesky factor gives."""

    matrix: Tensor
    """A, [G, n, n]."""
    cholesky: Tensor
    """L, with A = L Lᵀ, [G, n, n]."""
    precision: Tensor
    """A⁻¹, [G, n, n]."""
    logdet: Tensor
    """log|A|, [G]."""

    @property
    def variance(self) -> Tensor:
        """The diagonal of A, [G, n]."""
        return self.matrix.diagonal(dim1=-2, dim2=-1)

    def correlation(self) -> "Factor":
        """The same for the correlation matrix of A: it has unit variances."""
        deviation = self.variance.sqrt()
        outer = deviation.unsqueeze(-1) * deviation.unsqueeze(-2)
        return Factor(
            matrix=self.matrix / outer,
            cholesky=self.cholesky / deviation.unsqueeze(-1),
            precision=self.precision * outer,
            logdet=self.logdet - self.variance.log().sum(-1),
        )


def factorise(matrix: Tensor, what: str = "the covariance") -> Factor:
    """Factorise covariances [G, n, n], adding jitter only where there is no factor without.

    Args:
        matrix: symmetric, float64.
        what: how to call the matrix in a message.

    Raises:
        NotPositiveDefinite: where the largest jitter is not enough.
    """
    cholesky, precision, logdet, jitter = _Factorise.apply(matrix, what)
    if jitter.any():
        matrix = matrix + torch.diag_embed(jitter.unsqueeze(-1).expand(matrix.shape[:-1]))
    return Factor(matrix, cholesky, precision, logdet)


def _cholesky(matrix: Tensor, what: str) -> tuple[Tensor, Tensor]:
    """The lower factor of each matrix and the jitter that it took, [G]."""
    cholesky, failed = torch.linalg.cholesky_ex(matrix)
    scale = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)
    jitter = torch.zeros_like(scale)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for share in JITTERS:
        if not failed.any():
            return cholesky, jitter
        jitter = torch.where(failed != 0, share * scale, jitter)
        cholesky, failed = torch.linalg.cholesky_ex(matrix + jitter[:, None, None] * identity)
    if not failed.any():
        return cholesky, jitter
    raise NotPositiveDefinite(
        f"{what} of a sentence with N = {matrix.shape[-1]} is not positive definite even with "
        f"{JITTERS[-1]:g} of its variance added: raise the kernel's noise, or lower r"
    )


def _chunks(x: Tensor) -> Iterator[slice]:
    count = max(1, CAST_ELEMENTS // max(1, x[0].numel()))
    return (slice(start, start + count) for start in range(0, x.shape[0], count))


def _double(x: Tensor, centred: bool) -> Tensor:
    x = x.double()
    return x - x.mean(-2, keepdim=True) if centred else x


class _Gram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, centred: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.centred = centred
        products = x.new_empty(*x.shape[:-1], x.shape[-2], dtype=torch.float64)
        for chunk in _chunks(x):
            states = _double(x[chunk], centred)
            torch.bmm(states, states.mT, out=products[chunk])
        return products

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        result = torch.empty_like(x, memory_format=torch.contiguous_format)
        for chunk in _chunks(x):
            weights = gradient[chunk] + gradient[chunk].mT
            states = weights @ _double(x[chunk], ctx.centred)
            if ctx.centred:
                states -= states.mean(-2, keepdim=True)
            result[chunk] = states
        return result, None


class _Factorise(torch.autograd.Function):
    """A to its Cholesky factor, A⁻¹, log|A| and the jitter that it took."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, what: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        cholesky, jitter = _cholesky(matrix, what)
        identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        inverse = torch.linalg.solve_triangular(cholesky, identity.expand_as(cholesky), upper=False)
        precision = inverse.mT @ inverse
        logdet = 2 * cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        ctx.save_for_backward(cholesky, precision)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(jitter)
        return cholesky, precision, logdet, jitter

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,
        of_cholesky: Tensor | None,
        of_precision: Tensor | None,
        of_logdet: Tensor | None,
        _: Tensor | None,
    ) -> tuple[Tensor, None]:
        cholesky, precision = ctx.saved_tensors
        result = torch.zeros_like(precision)
        if of_precision is not None:
            result -= precision @ of_precision @ precision
        if of_logdet is not None:
            result += of_logdet[:, None, None] * precision
        if of_cholesky is not None:
            # L⁻ᵀ Φ(Lᵀ dL) L⁻¹, symmetrised; Φ keeps the lower triangle and half the diagonal.
            inner = (cholesky.mT @ of_cholesky).tril()
            inner.diagonal(dim1=-2, dim2=-1).mul_(0.5)
            inverse = precision @ cholesky
            outer = inverse @ inner @ inverse.mT
            result += 0.5 * (outer + outer.mT)
        return result, None
