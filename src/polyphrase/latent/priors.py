"""What the priors p(z|h) (paper, section 2.2) learn beyond the kernel.

Shapes: G sentences of equal length, n positions, D_h encoder and D latent dimensions, C components.
"""

import torch
from torch import Tensor, nn

from .distributions import Mixture
from .linear import apply, projection
from .posteriors import PosteriorNetwork


class MeanFunction(nn.Module):
    """m(h) of the Gaussian process: h itself, or a learned projection where D differs from D_h."""

    def __init__(self, hidden_size: int, size: int) -> None:
        super().__init__()
        self.projection = projection(hidden_size, size)

    def forward(self, states: Tensor) -> Tensor:
        """[G, n, D_h] to [G, n, D]."""
        return apply(self.projection, states)


class MixtureOfGaussians(nn.Module):
    """z_i ~ 1/C Σ_c N(m_c, diag exp ℓ_c) with m and ℓ learnable; they start spread out."""

    def __init__(self, components: int, size: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.randn(components, size))
        self.log_variance = nn.Parameter(torch.zeros(components, size))

    def forward(self, posterior: PosteriorNetwork) -> Mixture:
        """The prior of any position."""
        return Mixture(self.mean, self.log_variance)


class Vamp(nn.Module):
    """z_i ~ 1/C Σ_c q(z | u_c), the posterior's marginals at C learnable pseudo-states u_c of h."""

    def __init__(self, components: int, hidden_size: int) -> None:
        super().__init__()
        self.pseudo_states = nn.Parameter(torch.randn(components, hidden_size))

    def forward(self, posterior: PosteriorNetwork) -> Mixture:
        """The prior of any position."""
        mean, log_variance = posterior(self.pseudo_states.unsqueeze(1), prior_mean=None)
        return Mixture(mean.squeeze(1), log_variance.squeeze(1))
