"""p(z|x) and q(z|x): priors, posteriors and their divergence, in pure torch."""

from .beliefs import Beliefs
from .config import KernelConfig, LatentConfig
from .latent import Latent

__all__ = ["Beliefs", "KernelConfig", "Latent", "LatentConfig"]
