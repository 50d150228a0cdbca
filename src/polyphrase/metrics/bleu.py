"""BLEU (Papineni et al., 2002) and what is made of it: self-BLEU and iBLEU.

For n-gram orders n = 1..N with m_n matched and c_n counted n-grams, h tokens of output and r of the
closest references, all summed over the corpus,

    BLEU = min(1, exp(1 - r/h)) * prod_n (m_n / c_n)^(1/N).

The statistics of a source are (m_1..m_N, c_1..c_N, h, r) (K = 2N + 2), sums over its outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from .metric import MeanMetric, Metric, ratio
from .ngrams import OUTPUT, REFERENCE, SOURCE, WORDS, Floats, Ints, Ngrams, Outputs, Tokens


@dataclass(frozen=True)
class Bleu(Metric):
    """Corpus BLEU of all outputs against the references of their source.

    Without smoothing it is NLTK's `corpus_bleu`, which counts one n-gram for an output that is too
    short to have any; with `exp` it is sacreBLEU's, which counts none.
    """

    name: str = "bleu"
    order: int = 2
    tokens: Tokens = WORDS
    smoothing: Literal["none", "exp"] = "none"
    against: Literal["references", "source"] = "references"

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        return {"order": str(self.order), "smooth": self.smoothing, **self.tokens.signature}

    def statistics(self, outputs: Outputs) -> Floats:
        """Matches, counts and lengths of each source (B, 2N + 2)."""
        texts = np.arange(outputs.count)
        columns = self.text_statistics(outputs).T
        return np.stack([outputs.per_source(column, texts) for column in columns], axis=1)

    def text_statistics(self, outputs: Outputs) -> Floats:
        """Matches, counts and lengths of each output (T, 2N + 2)."""
        role = REFERENCE if self.against == "references" else SOURCE
        matches = []
        for n in range(1, self.order + 1):
            grams = outputs.ngrams(self.tokens, n)
            held = grams.most(outputs.role[grams.text] == role)
            matches.append(_sum_matches(outputs, grams, held))
        lengths = outputs.lengths(self.tokens)
        theirs = outputs.role == role
        closest = _closest(
            lengths[: outputs.count],
            outputs.group[: outputs.count],
            lengths[theirs],
            outputs.group[theirs],
        )
        return self._stack(lengths[: outputs.count], matches, closest)

    def _stack(self, lengths: Ints, matches: Sequence[Floats], closest: Ints) -> Floats:
        least = 1 if self.smoothing == "none" else 0
        counts = [np.maximum(lengths - n + 1, least) for n in range(1, self.order + 1)]
        return np.stack([*matches, *counts, lengths, closest], axis=1).astype(np.float64)

    def score(self, totals: Floats) -> Floats:
        """BLEU of summed statistics (..., 2N + 2) -> (...)."""
        matched, counted = totals[..., : self.order], totals[..., self.order : 2 * self.order]
        length, closest = totals[..., -2], totals[..., -1]
        found = (matched[..., 0] > 0) & (counted > 0).all(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.smoothing == "exp":
                # The k-th order without a match counts as if 1 / 2^k of an n-gram had matched.
                missed = np.cumsum(matched == 0, axis=-1)
                matched = np.where(matched == 0, 0.5**missed, matched)
            precision = np.exp(np.log(matched / counted).mean(axis=-1))
            brevity = np.exp(np.minimum(0.0, 1 - closest / length))
            return np.where(found, precision * brevity, 0.0)


@dataclass(frozen=True)
class SelfBleu(Bleu):
    """Corpus BLEU of each output with the other outputs for its source as references.

    The matches are pooled over all sources (Zhu et al., 2018, as the paper's scripts take it).
    Sources with one output do not count.
    """

    name: str = "self-bleu"
    higher_is_better = False

    def text_statistics(self, outputs: Outputs) -> Floats:
        """Matches, counts and lengths of each output (T, 2N + 2), 0 for one that is alone."""
        matches = []
        for n in range(1, self.order + 1):
            grams = outputs.ngrams(self.tokens, n)
            held = grams.most_elsewhere(outputs.role[grams.text] == OUTPUT)
            matches.append(_sum_matches(outputs, grams, held))
        lengths, group = (
            outputs.lengths(self.tokens)[: outputs.count],
            outputs.group[: outputs.count],
        )
        alone = np.bincount(group, minlength=len(outputs))[group] < 2
        statistics = self._stack(lengths, matches, _closest_other(lengths, group))
        statistics[alone] = 0.0
        return statistics

    def skipped(self, statistics: Floats) -> int:
        """How many sources have one output only."""
        return int((statistics[:, self.order] == 0).sum())


@dataclass(frozen=True)
class MeanBleu(MeanMetric):
    """The mean over the outputs of the BLEU of each alone, against references or each other."""

    bleu: Bleu
    name: str

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        return {"average": "outputs", **self.bleu.signature}

    @property
    def higher_is_better(self) -> bool:
        """As for the BLEU that is averaged."""
        return self.bleu.higher_is_better

    def values(self, outputs: Outputs) -> Floats:
        """The mean BLEU of each source's outputs (B,), NaN where none counts."""
        statistics = self.bleu.text_statistics(outputs)
        texts = np.flatnonzero(statistics[:, self.bleu.order] > 0)
        sums = outputs.per_source(self.bleu.score(statistics[texts]), texts)
        return ratio(sums, outputs.per_source(np.ones(len(texts)), texts))


@dataclass(frozen=True)
class IBleu(Metric):
    """iBLEU (Sun and Zhou, 2012): alpha BLEU(references) - (1 - alpha) BLEU(source).

    K is twice that of BLEU: the statistics against the references, then against the source.
    """

    bleu: Bleu
    alpha: float = 0.9
    name: str = "ibleu"

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        return {"alpha": f"{self.alpha:g}", **self.bleu.signature}

    def statistics(self, outputs: Outputs) -> Floats:
        """Both statistics (B, 4N + 4)."""
        source = replace(self.bleu, against="source")
        return np.hstack([self.bleu.statistics(outputs), source.statistics(outputs)])

    def score(self, totals: Floats) -> Floats:
        """The weighted difference (..., 4N + 4) -> (...)."""
        references, source = np.split(totals, 2, axis=-1)
        return self.alpha * self.bleu.score(references) - (1 - self.alpha) * self.bleu.score(source)


def _sum_matches(outputs: Outputs, grams: Ngrams, held: Ints) -> Floats:
    """The n-grams of each output that are held elsewhere, each as often as it is there (T,)."""
    matched = np.bincount(
        grams.text, weights=np.minimum(grams.count, held), minlength=len(outputs.texts)
    )
    return matched[: outputs.count].astype(np.float64)


def _closest(length: Ints, group: Ints, others: Ints, their_group: Ints) -> Ints:
    """For each length the closest among `others` of its group; of two as close, the shorter."""
    size = int(max(length.max(initial=0), others.max(initial=0))) + 1
    ranked = np.sort(their_group * size + others)
    at = np.searchsorted(ranked, group * size + length)
    below, above = ranked[at - 1], ranked[np.minimum(at, len(ranked) - 1)]
    return _nearer(
        length,
        np.where((at > 0) & (below // size == group), below % size, _NONE),
        np.where((at < len(ranked)) & (above // size == group), above % size, _NONE),
    )


def _closest_other(length: Ints, group: Ints) -> Ints:
    """For each length the closest of the other lengths of its group, which has two or more."""
    ranked = np.lexsort((length, group))
    lengths, groups = length[ranked], group[ranked]
    same = groups[1:] == groups[:-1]
    below, above = np.full(len(length), _NONE), np.full(len(length), _NONE)
    below[1:][same] = lengths[:-1][same]
    above[:-1][same] = lengths[1:][same]
    closest = np.empty_like(length)
    closest[ranked] = _nearer(lengths, below, above)
    return closest


_NONE = np.int64(-(2**40))  # no length is as far away


def _nearer(length: Ints, below: Ints, above: Ints) -> Ints:
    return np.where(abs(length - below) <= abs(above - length), below, above)
