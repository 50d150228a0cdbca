"""Covariances between the positions of a sentence, in float64: Gram matrices and one Cholesky.

Shapes: G sentences of equal length, n positions, D dimensions.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import NotPositiveDefinite

CHUNK_ELEMENTS = 2**18
"""The most elements of a float64 copy of states, unless one sentence has more."""
JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)
"""What the diagonal gains, as a share of its mean, until a Cholesky factor exists."""
SAME_POINT = 2.0**-44
"""Squared distances below this share of the squared norms are rounding: the points are equal."""


def gram(x: Tensor) -> Tensor:
    """X Xᵀ of each sentence in float64: [G, n, D] of any dtype to [G, n, n].

    Only `x` itself is kept for the backward pass, no float64 copy of it.
    """
    return _Gram.apply(x)


def squared_distances(products: Tensor) -> Tensor:
    """|xᵢ - xⱼ|² from the Gram matrix, [G, n, n]."""
    norms = products.diagonal(dim1=-2, dim2=-1)
    sums = norms.unsqueeze(-1) + norms.unsqueeze(-2)
    distances = sums - 2 * products
    return distances.masked_fill(distances <= SAME_POINT * sums, 0.0)


def chunks(x: Tensor) -> Iterator[slice]:
    """A few sentences of [G, n, D] at a time: float64 copies that stay in the processor's cache."""
    count = max(1, CHUNK_ELEMENTS // x[0].numel())
    return (slice(start, start + count) for start in range(0, x.shape[0], count))


class Factor(NamedTuple):
    """A covariance A with all that its Cholesky factor gives.

    A full one has matrices [G, n, n]; a diagonal one has their diagonals alone, [G, n].
    """

    matrix: Tensor
    """A."""
    cholesky: Tensor
    """L, with A = L Lᵀ."""
    precision: Tensor
    """A⁻¹."""
    logdet: Tensor
    """log|A|, [G]."""

    @classmethod
    def of_variance(cls, variance: Tensor) -> "Factor":
        """The diagonal covariance with this variance, [G, n]."""
        return cls(variance, variance.sqrt(), 1 / variance, variance.log().sum(-1))

    @property
    def full(self) -> bool:
        """Whether it has more than a diagonal."""
        return self.matrix.dim() == 3

    @property
    def variance(self) -> Tensor:
        """The diagonal of A, [G, n]."""
        return diagonal(self.matrix)

    def correlation(self) -> "Factor":
        """The correlation matrix of a full A: the covariance with unit variance."""
        deviation = self.variance.sqrt()
        outer = deviation.unsqueeze(-1) * deviation.unsqueeze(-2)
        return Factor(
            matrix=self.matrix / outer,
            cholesky=self.cholesky / deviation.unsqueeze(-1),
            precision=self.precision * outer,
            logdet=self.logdet - self.variance.log().sum(-1),
        )

    def colour(self, noise: Tensor) -> Tensor:
        """L ε: noise [..., G, n, D] with this covariance over positions, in its own dtype."""
        cholesky = self.cholesky.to(noise.dtype)
        return cholesky @ noise if self.full else cholesky.unsqueeze(-1) * noise


def diagonal(matrix: Tensor) -> Tensor:
    """The diagonals of [G, n, n], or [G, n] as it is."""
    return matrix.diagonal(dim1=-2, dim2=-1) if matrix.dim() == 3 else matrix


def factorise(matrix: Tensor, name: Callable[[], str]) -> Factor:
    """Factorise covariances [G, n, n], adding jitter only where there is no factor without.

    Args:
        matrix: symmetric, float64.
        name: says how to call the matrix in a message.

    Raises:
        NotPositiveDefinite: where the largest jitter is not enough.
    """
    cholesky, precision, logdet, jitter = _Factorise.apply(matrix, name)
    if jitter.any():
        matrix = matrix + torch.diag_embed(jitter.unsqueeze(-1).expand(matrix.shape[:-1]))
    return Factor(matrix, cholesky, precision, logdet)


def _cholesky(matrix: Tensor, name: Callable[[], str]) -> tuple[Tensor, Tensor]:
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
    if not matrix.isfinite().all():
        raise NotPositiveDefinite(
            f"{name()} of a sentence with N = {matrix.shape[-1]} holds NaN or infinity: the "
            "encoder's states, v or r are not finite and the run has diverged: lower the learning "
            "rate"
        )
    raise NotPositiveDefinite(
        f"{name()} of a sentence with N = {matrix.shape[-1]} is not positive definite even with "
        f"{JITTERS[-1]:g} of its variance added: raise the kernel's noise, or lower r"
    )


class _Gram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        products = x.new_empty(*x.shape[:-1], x.shape[-2], dtype=torch.float64)
        for chunk in chunks(x):
            states = x[chunk].double()
            torch.bmm(states, states.mT, out=products[chunk])
        return products

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        weights = gradient + gradient.mT
        result = x.new_empty(x.shape)
        for chunk in chunks(x):
            result[chunk] = weights[chunk] @ x[chunk].double()
        return result


class _Factorise(torch.autograd.Function):
    """A to its Cholesky factor, A⁻¹, log|A| and the jitter that it took."""

    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, name: Callable[[], str]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        cholesky, jitter = _cholesky(matrix, name)
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
