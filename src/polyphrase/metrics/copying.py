"""How much of an output is the source: the score to beat is the one of not writing anything new."""

from dataclasses import dataclass

import numpy as np

from ..text import normal_form
from .metric import MeanMetric
from .ngrams import OUTPUT, SOURCE, WORDS, Floats, Outputs, Tokens


@dataclass(frozen=True)
class Copies(MeanMetric):
    """The share of the outputs that are the source."""

    name: str = "copies"
    normalised: bool = False
    """Whether a difference in case, punctuation and spacing only is still a copy."""
    higher_is_better = False

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        return {"norm": "case+punct+space" if self.normalised else "outer space"}

    def values(self, outputs: Outputs) -> Floats:
        """The share of each source (B,)."""
        form = normal_form if self.normalised else str.strip
        pairs = zip(outputs.outputs, outputs.sources or [], strict=True)
        return np.array(
            [np.mean([form(text) == form(own) for text in texts]) for texts, own in pairs]
        )


@dataclass(frozen=True)
class Overlap(MeanMetric):
    """The share of an output's tokens that stand in the source, each at most as often as there."""

    name: str = "overlap"
    tokens: Tokens = WORDS
    higher_is_better = False

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        return {"order": "1", **self.tokens.signature}

    def values(self, outputs: Outputs) -> Floats:
        """The mean share of each source's outputs (B,)."""
        grams = outputs.ngrams(self.tokens, 1)
        held = np.minimum(grams.count, grams.most(outputs.role[grams.text] == SOURCE))
        matched = np.bincount(grams.text, weights=held, minlength=len(outputs.texts))
        texts = np.flatnonzero(outputs.role == OUTPUT)
        share = matched[texts] / np.maximum(outputs.lengths(self.tokens)[texts], 1)
        return outputs.per_source(share, texts) / outputs.per_source(np.ones(len(texts)), texts)
