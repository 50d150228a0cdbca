"""Which words of a source its target keeps: what a content selector learns from."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ..errors import MissingExtra
from .vocabulary import VocabularyCodec
from .words import JOINER


def focus(source: Sequence[str], target: Sequence[str]) -> list[bool]:
    """Whether the stem of each source word is among the stems of the target's words.

    Case does not count, and punctuation is never kept.
    """
    kept = {_stem(word) for word in target if _has_letters(word)}
    return [_has_letters(word) and _stem(word) in kept for word in source]


class FocusCodec(VocabularyCodec):
    """Words as a `Codec`, which in training also tells the focus of each source."""

    def pairs(self, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Tensor]:
        """A training batch, with `focus` 0 or 1 at each source position: see `Codec.pairs`."""
        batch = super().pairs(sources, targets)
        marks = torch.zeros_like(batch["input_ids"])
        for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
            words = self.vocabulary.tokenise(source)[: self.max_length]
            kept = focus(words, self.vocabulary.tokenise(target))
            marks[row, : len(kept)] = torch.tensor(kept, dtype=torch.long)
        return {**batch, "focus": marks}


def _has_letters(word: str) -> bool:
    return any(character.isalnum() for character in word)


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    try:
        from nltk.stem import PorterStemmer
    except ImportError:
        raise MissingExtra("nltk, whose stemmer finds the focus of a source,", "metrics") from None
    stem: str = PorterStemmer().stem(word.strip(JOINER).lower())
    return stem
