"""The latent: from the encoder's states to beliefs about the context variables z."""

import dataclasses
import warnings

import torch
from torch import Tensor, nn

from ..errors import BadInput, PolyphraseWarning
from .beliefs import Beliefs, Block
from .config import KernelConfig, LatentConfig
from .distributions import Mixture
from .gpytorch_kernels import GPyTorchKernel, described, rebuild
from .kernels import Kernel
from .posteriors import PosteriorNetwork
from .priors import MeanFunction, MixtureOfGaussians, Vamp
from .ragged import Ragged

WHITE = 1e-6
"""Below this mean correlation a Gaussian process is an independent prior in all but name."""


class Latent(nn.Module):
    """A random context variable z for each position of a source (paper, sections 2 and 3).

    Shapes: B sentences, N positions, D_h encoder and D latent dimensions.
    """

    def __init__(
        self, config: LatentConfig, hidden_size: int, kernel: nn.Module | None = None
    ) -> None:
        """Build prior and posterior.

        Args:
            config: what they are.
            hidden_size: D_h.
            kernel: a gpytorch kernel, used as it is in place of the configuration's.
        """
        super().__init__()
        if kernel is not None:
            structure = described(kernel, hidden_size)
            own = KernelConfig(name="gpytorch", noise=config.kernel.noise, gpytorch=structure)
            config = dataclasses.replace(config, kernel=own)
        self.config = config
        """What to save: a kernel object appears by its structure, or without if it has none."""
        self.dimension = config.size or hidden_size
        self.kernel: nn.Module | None = None
        if config.prior == "gp" or config.posterior == "correlated":
            self.kernel = _kernel(config.kernel, kernel)
        self.prior: MeanFunction | MixtureOfGaussians | Vamp | None = None
        match config.prior:
            case "gp":
                self.prior = MeanFunction(hidden_size, self.dimension)
            case "mixture":
                self.prior = MixtureOfGaussians(config.components, self.dimension)
            case "vamp":
                self.prior = Vamp(config.components, hidden_size)
        self.posterior = PosteriorNetwork(
            hidden_size,
            self.dimension,
            start_at_prior=config.start_at_prior,
            prior_sees_h=config.prior == "gp",
        )
        self._may_be_white = config.prior == "gp"

    def forward(self, h: Tensor, mask: Tensor) -> Beliefs:
        """Prior and posterior of z given the encoder's states.

        Args:
            h: [B, N, D_h].
            mask: [B, N], true or 1 at real positions.
        """
        exact = h.dtype == torch.float64
        ragged = Ragged(mask, max(h.shape[-1], self.dimension), exact=exact)
        mixture = None
        if isinstance(self.prior, MixtureOfGaussians | Vamp):
            mixture = self.prior(self.posterior)
        blocks = [self._block(states, mixture) for states in ragged.split(h)]
        beliefs = Beliefs(self.config, ragged, blocks, h.dtype)
        if self._may_be_white and any(n > 1 for _, n in ragged.sizes):
            self._may_be_white = False
            _warn_if_white(beliefs.correlation())
        return beliefs

    def _block(self, states: Tensor, mixture: Mixture | None) -> Block:
        prior_mean = self.prior(states) if isinstance(self.prior, MeanFunction) else None
        mean, log_variance = self.posterior(states, prior_mean)
        return Block(
            self.config,
            kernel=self.kernel,
            states=states,
            prior=prior_mean if mixture is None else mixture,
            mean=mean,
            log_variance=log_variance,
        )


def _kernel(config: KernelConfig, kernel: nn.Module | None) -> nn.Module:
    if config.name != "gpytorch":
        return Kernel(config)
    if kernel is None:
        if config.gpytorch is None:
            raise BadInput(
                "the gpytorch kernel of this latent cannot be rebuilt from its settings: hand the "
                "kernel object in"
            )
        kernel = rebuild(config.gpytorch)
    return GPyTorchKernel(kernel, config.noise)


def _warn_if_white(correlation: float) -> None:
    """Say that a Gaussian process has no correlation, as with the released code's settings."""
    if correlation < WHITE:
        warnings.warn(
            f"the mean correlation between positions is {correlation:.1e}: this 'Gaussian process' "
            "is an independent prior N(h, v² I); raise the kernel's length scale r, or use the "
            "relative scale",
            PolyphraseWarning,
            stacklevel=3,
        )
