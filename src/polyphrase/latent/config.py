"""What a latent is made of: its prior, posterior and kernel, as plain settings."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ..errors import BadInput

KernelName = Literal[
    "rbf",
    "matern12",
    "matern32",
    "matern52",
    "rational_quadratic",
    "linear",
    "cosine",
    "gpytorch",
]
Scale = Literal["relative", "absolute"]
Prior = Literal["gp", "normal", "mixture", "vamp"]
Posterior = Literal["correlated", "diagonal"]
Injection = Literal["concat", "add", "replace"]
Divergence = Literal["full", "sum", "none"]


@dataclass(frozen=True, kw_only=True)
class KernelConfig:
    """The covariance A = K + σ²I between the positions of one sentence (paper, section 2.2)."""

    name: KernelName = "rbf"
    """The shape of k(h, h′); ``gpytorch`` is a kernel object of that library."""
    v: float = 2.0
    """The prior's standard deviation; the paper searches 0.01 to 100, on the absolute scale."""
    r: float = 0.5
    """The length scale; the paper searches 0.0001 to 10, on the absolute scale."""
    noise: float = 0.01
    """σ² / v², which the paper leaves open: 1% of the variance is each position's own."""
    scale: Scale = "relative"
    """``relative``: v counts in RMS of h, r in median distances between a sentence's positions."""
    learnable: bool = False
    """Whether v and r are trained, through their logarithms, from the values above."""
    gpytorch: dict[str, Any] | None = None
    """The structure of a gpytorch kernel, as `describe` writes it; never a pickled object."""

    def __post_init__(self) -> None:
        _one_of("kernel.name", self.name, KernelName)
        _one_of("kernel.scale", self.scale, Scale)
        for name, value in (("v", self.v), ("r", self.r)):
            if not (math.isfinite(value) and value > 0):
                raise BadInput(f"kernel.{name} is {value}: give a finite number above 0")
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise BadInput(f"kernel.noise is {self.noise}: give σ²/v², a finite number from 0 up")
        if self.gpytorch is not None and self.name != "gpytorch":
            raise BadInput(
                f"kernel.gpytorch describes a kernel but kernel.name is {self.name!r}: "
                "set kernel.name to 'gpytorch'"
            )


@dataclass(frozen=True, kw_only=True)
class LatentConfig:
    """A random context variable z for each position of a source (paper, sections 2 and 3)."""

    prior: Prior = "gp"
    """p(z|h): Gaussian process, N(0, I), a mixture of Gaussians, or a VampPrior."""
    posterior: Posterior = "correlated"
    """q(z|h): independent positions (the paper), or positions correlated as the kernel says."""
    injection: Injection = "concat"
    """How z joins the decoder's memory; read by the models, not by the latent."""
    size: int | None = None
    """The number of latent dimensions D; null for the encoder's own size."""
    kernel: KernelConfig = field(default_factory=KernelConfig)
    """The covariance of the Gaussian process and of the correlated posterior."""
    components: int = 5
    """Components of the mixture and of the VampPrior (paper, section 2.2, footnote)."""
    start_at_prior: bool = True
    """Whether the untrained posterior is the prior, rather than two random linear layers."""
    kl: Divergence = "full"
    """``sum``: the released code's KL on one scalar per position; ``none``: no KL at all."""
    kernel_gradient: bool = True
    """Whether the KL and z may move the encoder's states through the covariance."""

    def __post_init__(self) -> None:
        _one_of("prior", self.prior, Prior)
        _one_of("posterior", self.posterior, Posterior)
        _one_of("injection", self.injection, Injection)
        _one_of("kl", self.kl, Divergence)
        if self.size is not None and self.size < 1:
            raise BadInput(f"size is {self.size}: give a whole number of dimensions from 1 up")
        if self.components < 1:
            raise BadInput(f"components is {self.components}: give a whole number from 1 up")
        if self.kl == "sum" and self.prior not in ("gp", "normal"):
            raise BadInput(
                f"kl 'sum' has no closed form under the {self.prior} prior: use kl 'full' or 'none'"
            )


def _one_of(name: str, value: str, literal: Any) -> None:
    if value not in get_args(literal):
        known = ", ".join(repr(option) for option in get_args(literal))
        raise BadInput(f"{name} is {value!r}: choose one of {known}")
