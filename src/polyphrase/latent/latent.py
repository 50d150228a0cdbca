"""The latent: prior and posterior of the context variables z of a batch, and what follows."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from . import divergence
from .config import LatentConfig
from .covariance import Factor
from .kernels import Kernel
from .posteriors import Heads, rowwise
from .priors import Mixture, Vamp, log_density
from .ragged import Ragged

LONG = 192
"""From this length on matrices are recomputed in the backward pass: they outweigh the states."""


class Latent(nn.Module):
    """A random context variable for each position (paper, sections 2 and 3).

    Shapes: B sentences, N positions, D_h encoder and D latent dimensions, S samples.
    """

    def __init__(self, config: LatentConfig, hidden_size: int) -> None:
        super().__init__()
        self.config = config
        self.dimension = config.size or hidden_size
        start = config.start_at_prior
        self.heads = Heads(hidden_size, self.dimension, start_at_zero=start)
        self.kernel = None
        if config.prior == "gp" or config.posterior == "correlated":
            self.kernel = Kernel(config.kernel)
        self.projection = None
        if self.dimension != hidden_size and (config.prior == "gp" or start):
            self.projection = nn.Linear(hidden_size, self.dimension)
        self.mixture: Mixture | Vamp | None = None
        if config.prior == "mixture":
            self.mixture = Mixture(config.components, self.dimension)
        elif config.prior == "vamp":
            self.mixture = Vamp(config.components, hidden_size)

    def forward(self, h: Tensor, mask: Tensor) -> "Beliefs":
        """Prior and posterior of z given the encoder's states.

        Args:
            h: [B, N, D_h].
            mask: [B, N], true or 1 at real positions.
        """
        ragged = Ragged(mask, max(h.shape[-1], self.dimension))
        blocks = [self._block(states) for states in ragged.split(h)]
        components = None
        if isinstance(self.mixture, Mixture):
            components = self.mixture.components()
        elif isinstance(self.mixture, Vamp):
            pseudo = self._block(self.mixture.states.unsqueeze(1))
            components = pseudo.mean.squeeze(1), pseudo.log_ratio.squeeze(1)
        return Beliefs(self.config, ragged, blocks, components, h.dtype)

    def _block(self, states: Tensor) -> "Block":
        mean, log_ratio = self.heads(states)
        centre = states if self.projection is None else rowwise(states, self.projection)
        if self.config.start_at_prior:
            if self.config.prior == "gp":
                mean = centre + mean
            else:
                mean = nn.functional.rms_norm(centre.to(mean.dtype), centre.shape[-1:]) + mean
        return Block(
            config=self.config,
            kernel=self.kernel,
            states=states if self.config.kernel_gradient else states.detach(),
            prior_mean=centre if self.config.prior == "gp" else None,
            mean=mean,
            log_ratio=log_ratio,
        )


@dataclass
class Block:
    """Beliefs about sentences of one length; the posterior's covariances are diag(t) M diag(t).

    Shapes: G sentences of equal length, n positions, D dimensions.
    """

    config: LatentConfig
    kernel: nn.Module | None
    states: Tensor
    prior_mean: Tensor | None
    mean: Tensor
    log_ratio: Tensor

    @property
    def long(self) -> bool:
        """Whether matrices are recomputed rather than kept."""
        return self.states.shape[-2] >= LONG and torch.is_grad_enabled()

    def factor(self) -> Factor:
        assert self.kernel is not None
        if self.long:
            return self.kernel(self.states)
        return self._kept_factor

    @cached_property
    def _kept_factor(self) -> Factor:
        assert self.kernel is not None
        return self.kernel(self.states)

    def base(self) -> tuple[Factor | None, Tensor | None]:
        """M as a factor, or its diagonal; neither for I."""
        at_prior = self.config.start_at_prior and self.config.prior == "gp"
        if self.config.posterior == "correlated":
            factor = self.factor()
            return (factor if at_prior else factor.correlation()), None
        return None, (self.factor().variance if at_prior else None)

    @property
    def delta(self) -> Tensor:
        """The posterior's mean less the prior's."""
        return self.mean if self.prior_mean is None else self.mean - self.prior_mean


class Beliefs:
    """Prior and posterior of z for a batch; each number of a sentence is free of its padding."""

    def __init__(
        self,
        config: LatentConfig,
        ragged: Ragged,
        blocks: list[Block],
        components: tuple[Tensor, Tensor] | None,
        dtype: torch.dtype,
    ) -> None:
        self.config = config
        self.ragged = ragged
        self.blocks = blocks
        self.components = components
        self.dtype = dtype

    @property
    def mean(self) -> Tensor:
        """The posterior mean, [B, N, D]."""
        return self.ragged.join([block.mean for block in self.blocks]).to(self.dtype)

    def sample(self, noise: Tensor, spread: float = 1.0) -> Tensor:
        """Z = μ + √spread t ∘ (L_M ε), [..., B, N, D] as the standard normal noise."""
        samples = [
            _recompute(block.long, self._sample, block, part, math.sqrt(spread))
            for block, part in zip(self.blocks, self.ragged.split(noise), strict=True)
        ]
        return self.ragged.join(samples).to(self.dtype)

    @staticmethod
    def _sample(block: Block, noise: Tensor, scale: float) -> Tensor:
        with torch.autocast(noise.device.type, enabled=False):
            factor, variance = block.base()
            noise = noise.to(block.mean.dtype)
            if factor is not None:
                noise = factor.cholesky.to(noise.dtype) @ noise
            elif variance is not None:
                noise = variance.sqrt().unsqueeze(-1).to(noise.dtype) * noise
            return block.mean + scale * (0.5 * block.log_ratio).exp() * noise

    def kl(self, z: Tensor | None = None) -> Tensor:
        """KL[q(z|h) ‖ p(z|h)] in nats per sentence, [B]."""
        parts = [None] * len(self.blocks) if z is None else self.ragged.split(z)
        values = [
            _recompute(block.long, self._kl, block, part)
            for block, part in zip(self.blocks, parts, strict=True)
        ]
        return self.ragged.join_sentences(values).to(torch.promote_types(self.dtype, torch.float32))

    def _kl(self, block: Block, z: Tensor | None) -> Tensor:
        with torch.autocast(block.states.device.type, enabled=False):
            factor, variance = block.base()
            base = factor.matrix if factor is not None else variance
            if base is None:
                base = torch.ones(
                    block.mean.shape[:-1], dtype=torch.float64, device=block.mean.device
                )
            logdet = factor.logdet if factor is not None else base.log().sum(-1)
            if self.config.kl == "none":
                return torch.zeros_like(logdet)
            if self.components is not None:
                density = log_density(z, *self.components).sum(-1)
                return -divergence.entropy(logdet, block.log_ratio) - density
            prior = block.factor() if self.config.prior == "gp" else None
            precision = None if prior is None else prior.precision
            logdets = (0 if prior is None else prior.logdet) - logdet
            return divergence.gaussian_kl(precision, base, logdets, block.delta, block.log_ratio)


def _recompute(long: bool, function: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """The value of a function, whose intermediate results are dropped where they would be large."""
    if not long:
        return function(*inputs)
    result: Tensor = checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
    return result
