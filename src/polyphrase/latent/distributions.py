"""Prior and posterior of the context variables of sentences of one length.

Shapes: G sentences of equal length, n positions, D dimensions, C components.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .covariance import Factor


@dataclass(frozen=True)
class Gaussian:
    """A prior N(mean_d, A) for each dimension d; no mean is 0."""

    mean: Tensor | None
    covariance: Factor

    def variance(self) -> Tensor:
        """The mean variance of a position, []."""
        return self.covariance.variance.mean()


@dataclass(frozen=True)
class Mixture:
    """A prior with the same mixture of C Gaussians, equal weights, at each position.

    The components have means and log-variances [C, D].
    """

    mean: Tensor
    log_variance: Tensor

    def log_density(self, z: Tensor) -> Tensor:
        """The log-density of each position, in float64: [G, n, D] to [G, n]."""
        z, mean, log_variance = z.double(), self.mean.double(), self.log_variance.double()
        precision = torch.exp(-log_variance)
        squares = z.square() @ precision.mT - 2 * z @ (mean * precision).mT
        constant = (mean.square() * precision + log_variance + math.log(2 * math.pi)).sum(-1)
        components = -0.5 * (squares + constant)
        return torch.logsumexp(components, -1) - math.log(mean.shape[0])

    def variance(self) -> Tensor:
        """The variance of a position, [D]."""
        return (self.log_variance.exp() + self.mean.square()).mean(0) - self.mean.mean(0).square()


@dataclass(frozen=True)
class Posterior:
    """q(z_d|h) = N(mean_d, diag(t_d) M diag(t_d)), with t² = exp(log_ratio), [G, n, D]."""

    mean: Tensor
    log_ratio: Tensor
    base: Factor
    """M: full makes positions correlated, diagonal makes them independent."""

    def sample(self, noise: Tensor, scale: float) -> Tensor:
        """μ + scale · t ∘ (L_M ε), [..., G, n, D] as the standard normal noise ε."""
        coloured = self.base.colour(noise.to(self.mean.dtype))
        return self.mean + scale * (0.5 * self.log_ratio).exp() * coloured
