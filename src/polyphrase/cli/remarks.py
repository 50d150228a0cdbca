"""What a run says beside its rewrites: which texts were cut, and which have too few."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..api import Rewriter, Rewrites
    from ..decoding.settings import Search

TOLD = 3
"""So many texts with too few rewrites are named; the others are counted."""


class Remarks:
    """Lines on standard error about the texts of one run.

    Args:
        rewriter: the model.
        n: how many rewrites of each text were asked for.
        spread: of the latent.
        search: how words are chosen.
        named: whether texts with too few rewrites are named as they come.
    """

    def __init__(
        self, rewriter: Rewriter, n: int, spread: float, search: Search, named: bool = True
    ) -> None:
        self._rewriter = rewriter
        self._n = n
        self._remedy = _remedy(rewriter, spread, search)
        self._named = named
        self._texts = self._few = self._cut = 0

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Around the run: what is counted here is not warned of batch by batch as well."""
        from ..api import Truncated

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Truncated)
            try:
                yield
            finally:
                self._sum_up()

    def add(self, item: Rewrites) -> None:
        """Look at the rewrites of one text."""
        self._texts += 1
        self._cut += item.truncated
        found = len(item.candidates)
        if found < self._n:
            self._few += 1
            if self._named and self._few <= TOLD:
                _say(f"{_few(found, self._n)} of {brief(item.source)}; {self._remedy}")

    def _sum_up(self) -> None:
        if self._few > (TOLD if self._named else 0):
            have = "has" if self._few == 1 else "have"
            few = "no different rewrite" if self._n == 1 else f"fewer than {self._n} that differ"
            _say(f"{self._few} of {_texts(self._texts)} {have} {few}; {self._remedy}")
        if self._cut:
            have = "was" if self._cut == 1 else "were"
            _say(
                f"{self._cut} of {_texts(self._texts)} {have} cut to the "
                f"{self._rewriter.codec.max_length} tokens that {self._rewriter.name} reads; "
                "--strict refuses such a text"
            )


def brief(text: str, width: int = 48) -> str:
    """A text, quoted, on one line, and not longer than a glance."""
    text = " ".join(text.split())
    return repr(text if len(text) <= width else text[: width - 4].rstrip() + " ...")


def _few(found: int, n: int) -> str:
    if found == 0:
        return "no different rewrite"
    return f"only {found} different rewrite{'s' if found > 1 else ''} instead of {n}"


def _texts(count: int) -> str:
    return f"{count} text" + ("s" if count != 1 else "")


def _remedy(rewriter: Rewriter, spread: float, search: Search) -> str:
    if search.stochastic:
        return "raise --temperature for more"
    if not rewriter.model.has_latent:
        return "draw words for more (--search sample)"
    return "raise --spread for more" if spread else "give a --spread above 0 for more"


def _say(line: str) -> None:
    print(f"polyphrase: {line}", file=sys.stderr, flush=True)
