"""The seam between a decoder and the search: one step at a time, over rows of a memory."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class Executor(Protocol):
    """A decoder that runs over a memory, one word a step, for as many rows as the search asks.

    The first step has one row for each row of the memory; each later step names, for each of its
    rows, the row of the step before that it continues. So beams branch, are reordered and end by
    `parents` alone, and no search knows how a decoder keeps its past.
    """

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """Read one token per row.

        Args:
            tokens: the tokens to read, `[R]`.
            parents: the row of the previous step that each row continues, `[R]`;
                `None` at the first step, where row i reads memory row i.

        Returns:
            What `logits` needs of each row, `[R, F]`.
        """

    def logits(self, features: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the next word, in the decoder's format, `[R, V]`.

        A search may ask for some rows at a time, so that the whole table is never in memory.
        """


@dataclass(frozen=True)
class Rules:
    """What a system never says, whatever the search.

    Attributes:
        end: the token that ends a hypothesis.
        first: the token that every hypothesis starts with, when the family has one (mBART).
        last: the token at `max_length`, when the family forces one (BART).
        forbidden: tokens that are never chosen (Marian's padding).
    """

    end: int
    first: int | None = None
    last: int | None = None
    forbidden: tuple[int, ...] = ()
