"""Kernels k(h, h′) over the positions of a sentence, and their covariance A = K + σ²I."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .config import KernelConfig
from .covariance import Factor, factorise, gram, squared_distances


class Kernel(nn.Module):
    """The covariance A = v² (R + noise I) of a sentence's positions, R from one of the shapes below.

    R depends on d²/r², d the distance of two encoder states, or for the linear and the cosine
    kernel on their inner product alone (paper, equation 3, for the RBF).

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
        if self.config.name in STATIONARY:
            distances = squared_distances(states)
            if self.config.scale == "relative":
                r = r * _median_distance(distances, states)
            shape = STATIONARY[self.config.name](distances / _square(r))
        else:
            shape = INNER_PRODUCT[self.config.name](gram(states))
        if self.config.scale == "relative":
            v = v * _rms(states)
        identity = torch.eye(states.shape[-2], dtype=shape.dtype, device=shape.device)
        matrix = _square(v) * (shape + self.config.noise * identity)
        return factorise(
            matrix,
            f"the {self.config.name} kernel (v = {float(_exp(self.log_v)):g}, "
            f"r = {float(_exp(self.log_r)):g}, {self.config.scale})",
        )


def _exp(log: Tensor | float) -> Tensor | float:
    return log.double().exp() if isinstance(log, Tensor) else math.exp(log)


def _square(x: Tensor | float) -> Tensor | float:
    return x * x


@torch.no_grad()
def _rms(states: Tensor) -> Tensor:
    """The root mean square of a sentence's states, [G, 1, 1]; 1 where they are all zero."""
    norms = torch.linalg.vector_norm(states, dim=-1, dtype=torch.float64)
    mean = norms.square().mean(-1) / states.shape[-1]
    return torch.where(mean > 0, mean, 1.0).sqrt()[:, None, None]


@torch.no_grad()
def _median_distance(distances: Tensor, states: Tensor) -> Tensor:
    """The median distance of two positions, [G, 1, 1].

    Where most positions are equal, or there is one, it is the distance that independent states of
    the same RMS would have: the kernel then says that equal positions are equal, whatever r is.
    """
    fallback = _rms(states) * math.sqrt(2 * states.shape[-1])
    n = states.shape[-2]
    if n == 1:
        return fallback
    row, column = torch.tril_indices(n, n, -1, device=states.device)
    median = distances[:, row, column].median(-1).values.sqrt()[:, None, None]
    return torch.where(median > 0, median, fallback)


def _distance(squared: Tensor) -> Tensor:
    """√x with a gradient of 0, not infinity, at 0."""
    positive = squared > 0
    return torch.where(positive, squared, 1.0).sqrt() * positive


def _matern12(squared: Tensor) -> Tensor:
    return torch.exp(-_distance(squared))


def _matern32(squared: Tensor) -> Tensor:
    x = _distance(3 * squared)
    return (1 + x) * torch.exp(-x)


def _matern52(squared: Tensor) -> Tensor:
    x = _distance(5 * squared)
    return (1 + x + x.square() / 3) * torch.exp(-x)


STATIONARY: dict[str, Callable[[Tensor], Tensor]] = {
    "rbf": lambda squared: torch.exp(-0.5 * squared),
    "matern12": _matern12,
    "matern32": _matern32,
    "matern52": _matern52,
    "rational_quadratic": lambda squared: 1 / (1 + 0.5 * squared),  # with α = 1
}
"""R as a function of d²/r²."""


def _linear(products: Tensor) -> Tensor:
    """xᵢ·xⱼ over the sentence's mean |x|², a constant: the mean variance is then v²."""
    mean = products.detach().diagonal(dim1=-2, dim2=-1).mean(-1)
    return products / torch.where(mean > 0, mean, 1.0)[:, None, None]


def _cosine(products: Tensor) -> Tensor:
    norms = products.diagonal(dim1=-2, dim2=-1)
    norms = torch.where(norms > 0, norms, 1.0).sqrt()
    return products / (norms.unsqueeze(-1) * norms.unsqueeze(-2))


INNER_PRODUCT: dict[str, Callable[[Tensor], Tensor]] = {"linear": _linear, "cosine": _cosine}
"""R as a function of the Gram matrix."""
