"""What every system is to the rest of the library, whatever it is inside."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..backbones.executor import Executor, Rules
from ..backbones.memory import Memory
from ..data.codec import IGNORED


@dataclass
class ElboOutput:
    """One evidence lower bound per sentence, in nats.

    Attributes:
        loss: (sum of nll + sum of kl + sum of penalty) / number of target tokens.
        nll: -log p(y | z) at one z, `[B]`.
        kl: KL[q(z|h) || p(z|h)], `[B]`; zeros without a latent.
        tokens: how many target tokens are real.
        diagnose: numbers for the log about the latent, by name (`active` counts the dimensions that
            carry anything), computed when asked for; `None` without a latent.
        penalty: what training minimises beside the bound, `[B]` (coverage, a selector's loss).
    """

    loss: Tensor
    nll: Tensor
    kl: Tensor
    tokens: Tensor
    diagnose: Callable[[], dict[str, float]] | None = None
    penalty: Tensor | None = None

    @classmethod
    def of(
        cls,
        nll: Tensor,
        kl: Tensor,
        labels: Tensor,
        diagnose: Callable[[], dict[str, float]] | None = None,
        penalty: Tensor | None = None,
    ) -> "ElboOutput":
        """The output of a batch with these labels `[B, T]`, padding marked by `IGNORED`."""
        tokens = (labels != IGNORED).sum()
        total = nll.sum() + kl.sum()
        if penalty is not None:
            total = total + penalty.sum()
        return cls(total / tokens, nll, kl, tokens, diagnose, penalty)


class Draws(Protocol):
    """The random numbers behind S samples of B sources.

    Those of sample k depend on the user's seed, the source and k alone.
    """

    @property
    def numbers(self) -> Sequence[int]:
        """S sample numbers."""

    @property
    def spread(self) -> float:
        """Above 0: what is drawn from has its density raised to the power 1 / spread.

        For a Gaussian that multiplies its covariance by the spread.
        """

    def normal(self, mask: Tensor, size: int) -> Tensor:
        """Standard normal noise, `[S, B, N, size]`, zero where the mask `[B, N]` is false."""

    def uniform(self) -> Tensor:
        """A number in [0, 1) for each word of each sample, `[B * S, T]`."""


class System(Protocol):
    """What generation asks of a model."""

    @property
    def has_latent(self) -> bool:
        """Whether samples can differ by more than the words that a search draws."""

    @property
    def start_token(self) -> int:
        """What the decoder reads first."""

    @property
    def pad_token(self) -> int:
        """What follows the end."""

    @property
    def rules(self) -> Rules:
        """What is never or always said."""

    def encode(self, sources: Mapping[str, Tensor]) -> Memory:
        """What is known of each source before anything is drawn, `[B, N, ...]`."""

    def expected(self, memory: Memory) -> Memory:
        """What the decoder sees when one output is to be good, not different.

        `B * A` rows: A memories of each source in succession, whose best outputs compete; A is 1
        but for a mixture.
        """

    def sampled(self, memory: Memory, draws: Draws) -> Memory:
        """What the decoder sees in each sample: `B * S` rows, the samples of a source together."""

    def executor(self, memory: Memory) -> Executor:
        """The decoder over the rows of `memory`."""
