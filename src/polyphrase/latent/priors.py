"""Priors without positions' covariance: the mixture of Gaussians and the VampPrior.

The Gaussian process is a `Kernel` and a mean; N(0, I) has no parameters. What they give the
divergence is in `latent.py`.
"""

import math

import torch
from torch import Tensor, nn


class Mixture(nn.Module):
    """p(z_i) = 1/C Σ_c N(m_c, diag exp ℓ_c), the same at each position, with m and ℓ learnable.

    Shapes: C components, D dimensions.
    """

    def __init__(self, components: int, size: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.randn(components, size))
        self.log_variance = nn.Parameter(torch.zeros(components, size))

    def components(self) -> tuple[Tensor, Tensor]:
        """Means and log-variances, [C, D]."""
        return self.mean, self.log_variance


class Vamp(nn.Module):
    """p(z_i) = 1/C Σ_c q(z | u_c), the posterior at C learnable pseudo-states u_c of the encoder.

    Shapes: C components, D_h encoder dimensions, D dimensions.
    """

    def __init__(self, components: int, hidden_size: int) -> None:
        super().__init__()
        self.states = nn.Parameter(torch.randn(components, hidden_size))


def log_density(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Log p(z) of positions that share one mixture with equal weights, in float64, [..., n].

    Args:
        z: [..., n, D].
        mean: of the components, [C, D].
        log_variance: of the components, [C, D].
    """
    z, mean, log_variance = z.double(), mean.double(), log_variance.double()
    precision = torch.exp(-log_variance)
    squares = _each(z.square(), precision) - 2 * _each(z, mean * precision)
    constant = (mean.square() * precision + log_variance).sum(-1) + z.shape[-1] * math.log(
        2 * math.pi
    )
    return torch.logsumexp(-0.5 * (squares + constant), -1) - math.log(mean.shape[0])


def _each(z: Tensor, weights: Tensor) -> Tensor:
    """A product per sentence, so that its rounding does not depend on the others."""
    return z @ weights.mT.expand(*z.shape[:-2], -1, -1)


def moments(mean: Tensor, log_variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of a mixture with equal weights, [D]."""
    centre = mean.mean(0)
    return centre, (log_variance.exp() + mean.square()).mean(0) - centre.square()
