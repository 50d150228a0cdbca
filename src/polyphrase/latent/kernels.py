"""Kernels k(h, h′) over the positions of a sentence, and their covariance A = K + σ²I."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .config import KernelConfig
from .covariance import Factor, factorise, gram, squared_distances


class Kernel(nn.Module):
    """A = v² (R + noise I), with R one of the shapes below (paper, equation 3, for the RBF).

    R is a function of d²/r², d the distance of two encoder states, or for the linear and the cosine
    kernel of their inner product. On the relative scale v counts in the RMS of the sentence's
    states and r in the median distance of two of them, both constants without gradient.

    Shapes: G sentences of equal length, n positions, D_h encoder dimensions.
    """

    def __init__(self, config: KernelConfig) -> None:
        super().__init__()
        self.config = config
        self.log_v: nn.Parameter | float = math.log(config.v)
        self.log_r: nn.Parameter | float = math.log(config.r)
        if config.learnable:
            self.log_v = nn.Parameter(torch.tensor(self.log_v))
            if config.name in STATIONARY:
                self.log_r = nn.Parameter(torch.tensor(self.log_r))

    def forward(self, states: Tensor) -> Factor:
        """The factorised covariance of encoder states [G, n, D_h]."""
        v, r = _exp(self.log_v), _exp(self.log_r)
        relative = self.config.scale == "relative"
        products = gram(states)
        rms = _rms(products.detach(), states.shape[-1])
        if self.config.name in STATIONARY:
            squares = squared_distances(products)
            if relative:
                apart = rms * math.sqrt(2 * states.shape[-1])  # of independent states
                r = r * _median_distance(squares.detach(), otherwise=apart)
            shape = STATIONARY[self.config.name](squares / (r * r))
        else:
            shape = INNER_PRODUCT[self.config.name](products)
        if relative:
            v = v * rms
        identity = torch.eye(states.shape[-2], dtype=shape.dtype, device=shape.device)
        return factorise(v * v * (shape + self.config.noise * identity), self._name)

    def _name(self) -> str:
        v, r = (float(torch.as_tensor(_exp(log)).detach()) for log in (self.log_v, self.log_r))
        return f"the {self.config.name} kernel (v = {v:g}, r = {r:g}, {self.config.scale})"


def _exp(log: Tensor | float) -> Tensor | float:
    return log.double().exp() if isinstance(log, Tensor) else math.exp(log)


def _rms(products: Tensor, size: int) -> Tensor:
    """The root mean square of a sentence's states, [G, 1, 1]; 1 where they are all zero."""
    mean = products.diagonal(dim1=-2, dim2=-1).mean(-1) / size
    return torch.where(mean > 0, mean, 1.0).sqrt()[:, None, None]


def _median_distance(squares: Tensor, otherwise: Tensor) -> Tensor:
    """The median distance of two positions, [G, 1, 1]; `otherwise` where it is 0 or n is 1."""
    n = squares.shape[-1]
    if n == 1:
        return otherwise
    row, column = torch.tril_indices(n, n, -1, device=squares.device)
    median = squares[:, row, column].median(-1).values.sqrt()[:, None, None]
    return torch.where(median > 0, median, otherwise)


def _root(x: Tensor) -> Tensor:
    """√x, with gradient 0 and not infinity at 0."""
    positive = x > 0
    return torch.where(positive, x, 1.0).sqrt() * positive


def _rbf(squares: Tensor) -> Tensor:
    return torch.exp(-0.5 * squares)


def _matern12(squares: Tensor) -> Tensor:
    return torch.exp(-_root(squares))


def _matern32(squares: Tensor) -> Tensor:
    x = _root(3 * squares)
    return (1 + x) * torch.exp(-x)


def _matern52(squares: Tensor) -> Tensor:
    x = _root(5 * squares)
    return (1 + x + x.square() / 3) * torch.exp(-x)


def _rational_quadratic(squares: Tensor) -> Tensor:
    """With α = 1: the RBF averaged over exponentially distributed 1/r²."""
    return 1 / (1 + 0.5 * squares)


STATIONARY: dict[str, Callable[[Tensor], Tensor]] = {
    "rbf": _rbf,
    "matern12": _matern12,
    "matern32": _matern32,
    "matern52": _matern52,
    "rational_quadratic": _rational_quadratic,
}
"""R as a function of d²/r²."""


def _linear(products: Tensor) -> Tensor:
    """xᵢ·xⱼ over the sentence's mean |x|², a constant, so that the mean variance is v²."""
    mean = products.detach().diagonal(dim1=-2, dim2=-1).mean(-1)
    return products / torch.where(mean > 0, mean, 1.0)[:, None, None]


def _cosine(products: Tensor) -> Tensor:
    squares = products.diagonal(dim1=-2, dim2=-1)
    norms = torch.where(squares > 0, squares, 1.0).sqrt()
    return products / (norms.unsqueeze(-1) * norms.unsqueeze(-2))


INNER_PRODUCT: dict[str, Callable[[Tensor], Tensor]] = {"linear": _linear, "cosine": _cosine}
"""R as a function of the Gram matrix."""
