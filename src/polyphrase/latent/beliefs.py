"""What is believed of the context variables of a batch: prior and posterior, and what follows."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..errors import BadInput
from . import divergence
from .config import LatentConfig
from .covariance import Factor
from .distributions import Gaussian, Mixture, Posterior
from .ragged import Ragged

LONG = 192
"""From this length on matrices outweigh states: they are computed again at each use, not kept."""
ACTIVE = 0.01
"""A dimension is active when its mean varies by more than this share of the prior's variance."""


class Block:
    """Prior and posterior of sentences of one length.

    Shapes: G sentences of equal length, n positions, D_h encoder and D latent dimensions.
    """

    def __init__(
        self,
        config: LatentConfig,
        *,
        kernel: nn.Module | None,
        states: Tensor,
        prior: Tensor | Mixture | None,
        mean: Tensor,
        log_variance: Tensor,
    ) -> None:
        """Take what the networks make of the states.

        Args:
            config: of the latent.
            kernel: from states to their covariance, where the prior or the posterior has one.
            states: of the encoder, [G, n, D_h].
            prior: the mean of the Gaussian process, [G, n, D], or a mixture; `None` for N(0, I).
            mean: of the posterior, [G, n, D].
            log_variance: of the posterior, relative to the Gaussian process that it starts at.
        """
        self._config = config
        self._kernel = kernel
        self._states = states if config.kernel_gradient else states.detach()
        self._prior = prior
        self.mean = mean
        self._log_variance = log_variance
        self.long = states.shape[-2] >= LONG
        self._kept = None if self.long else self._distributions()

    def covariance(self) -> Factor | None:
        """The kernel's covariance, in float64 whatever the autocast state."""
        if self._kernel is None:
            return None
        with torch.autocast(self._states.device.type, enabled=False):
            return self._kernel(self._states)

    def distributions(self) -> tuple[Posterior, Gaussian | Mixture]:
        """q(z|h) and p(z|h)."""
        return self._distributions() if self._kept is None else self._kept

    def _distributions(self) -> tuple[Posterior, Gaussian | Mixture]:
        ones = self.mean.new_ones(self.mean.shape[:-1], dtype=torch.float64)
        base = independent = Factor.of_variance(ones)
        covariance = self.covariance()
        if covariance is not None:
            relative = self._config.start_at_prior and self._config.prior == "gp"
            if self._config.posterior == "correlated":
                base = covariance if relative else covariance.correlation()
            elif relative:
                base = Factor.of_variance(covariance.variance)
        posterior = Posterior(self.mean, self._log_variance, base)
        if isinstance(self._prior, Mixture):
            return posterior, self._prior
        prior_covariance = covariance if self._config.prior == "gp" else None
        return posterior, Gaussian(self._prior, prior_covariance or independent)


class Beliefs:
    """Prior and posterior of z for a batch; no number of a sentence depends on its padding.

    Shapes: B sentences, N positions, D dimensions, S samples.
    """

    def __init__(
        self, config: LatentConfig, ragged: Ragged, blocks: list[Block], dtype: torch.dtype
    ) -> None:
        self._config = config
        self._ragged = ragged
        self._blocks = blocks
        self._dtype = dtype

    @property
    def posterior(self) -> list[Posterior]:
        """q(z|h) of each block of sentences of one length."""
        return [block.distributions()[0] for block in self._blocks]

    @property
    def prior(self) -> list[Gaussian | Mixture]:
        """p(z|h) of each block of sentences of one length."""
        return [block.distributions()[1] for block in self._blocks]

    @property
    def mean(self) -> Tensor:
        """The posterior mean, [B, N, D], 0 at pads."""
        return self._ragged.join([block.mean for block in self._blocks]).to(self._dtype)

    def sample(self, noise: Tensor, spread: float = 1.0) -> Tensor:
        """Samples μ + √spread · t ∘ (L_M ε), with the shape of the noise, 0 at pads.

        Args:
            noise: standard normal ε, [B, N, D] or [S, B, N, D].
            spread: multiplies the covariance; 0 gives the mean.
        """
        if not (math.isfinite(spread) and spread >= 0):
            raise BadInput(f"spread is {spread}: give a finite number from 0 up")
        scale = math.sqrt(spread)
        samples = self._map(lambda q, p, part: q.sample(part, scale), noise)
        return self._ragged.join(samples).to(self._dtype)

    def kl(self, z: Tensor | None = None) -> Tensor:
        """KL[q(z|h) ‖ p(z|h)] in nats per sentence, [B], of the configuration's kind.

        Args:
            z: a sample, [B, N, D]: a mixture needs one, as the KL to it has no closed form.
        """
        match self._config.kl:
            case "full":
                values = self._map(divergence.kl, z)
            case "sum":
                values = self._map(lambda q, p, _: divergence.kl_of_sum(q, p), None)
            case "none":
                values = self._map(lambda q, p, _: torch.zeros_like(q.base.logdet), None)
        return self._join_sentences(values)

    @torch.no_grad()
    def kl_per_dimension(self) -> Tensor | None:
        """The mean of the full KL over the batch, [D]; `None` where it has no closed form."""
        terms = []
        for q, p in zip(self.posterior, self.prior, strict=True):
            if isinstance(p, Mixture):
                return None
            terms.append(divergence.kl_per_dimension(q, p))
        return torch.cat(terms).sum(0) / self._ragged.shape[0]

    @torch.no_grad()
    def floor(self) -> Tensor:
        """The least full KL that the posterior's form allows, [B]; 0 for a correlated one."""
        return self._join_sentences(
            self._map(lambda q, p, _: divergence.mean_field_floor(q, p), None)
        )

    @torch.no_grad()
    def correlation(self) -> float:
        """The mean absolute correlation that the kernel gives two positions of a sentence."""
        total = pairs = 0.0
        for block in self._blocks:
            covariance = block.covariance()
            if covariance is not None:
                matrix = covariance.correlation().matrix.abs()
                count, n, _ = matrix.shape
                total += float(matrix.sum()) - count * n
                pairs += count * n * (n - 1)
        return max(0.0, total) / pairs if pairs else 0.0

    @torch.no_grad()
    def active(self) -> Tensor:
        """Which dimensions carry information about the source, [D] of bool.

        Burda et al.'s active units: the posterior mean varies over all positions of the batch by
        more than a small share of the prior's variance.
        """
        means = torch.cat([block.mean.flatten(0, 1) for block in self._blocks]).double()
        counts = [count * n for count, n in self._ragged.sizes]
        prior = sum(k * p.variance() for k, p in zip(counts, self.prior, strict=True)) / sum(counts)
        return means.var(0, correction=0) > ACTIVE * prior

    def _map(
        self, function: Callable[[Posterior, Any, Any], Tensor], padded: Tensor | None
    ) -> list[Tensor]:
        """A function of q, p and a part of a padded tensor, [..., B, N, D], at each block."""
        parts = [None] * len(self._blocks) if padded is None else self._ragged.split(padded)
        return [
            self._at(block, function, part) for block, part in zip(self._blocks, parts, strict=True)
        ]

    def _at(self, block: Block, function: Callable[..., Tensor], part: Tensor | None) -> Tensor:
        def value(part: Tensor | None) -> Tensor:
            with torch.autocast(block.mean.device.type, enabled=False):
                return function(*block.distributions(), part)

        if block.long and torch.is_grad_enabled():
            result: Tensor = checkpoint(value, part, use_reentrant=False, preserve_rng_state=False)
            return result
        return value(part)

    def _join_sentences(self, values: list[Tensor]) -> Tensor:
        wide = torch.promote_types(self._dtype, torch.float32)
        return self._ragged.join_sentences(values).to(wide)
