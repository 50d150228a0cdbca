"""chrF (Popović, 2015), as sacreBLEU computes it: an F-score of character n-grams.

With the precision P and recall R of character n-grams, each averaged over the orders 1..6 that both
sides have, chrF = (1 + β²) P R / (β² P + R), β = 2. Of several references each output is compared
with the one that it scores best against. K = 18: for each order the n-grams of the output, of that
reference, and matched.
"""

from dataclasses import dataclass

import numpy as np

from ..errors import BadInput
from .metric import Metric
from .ngrams import OUTPUT, REFERENCE, Floats, Outputs, Tokens

ORDER = 6
BETA = 2.0


@dataclass(frozen=True)
class ChrF(Metric):
    """Corpus chrF of one output per source."""

    name: str = "chrf"
    lowercase: bool = False

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        case = "lower" if self.lowercase else "mixed"
        return {"nc": str(ORDER), "nw": "0", "beta": f"{BETA:g}", "space": "no", "case": case}

    def statistics(self, outputs: Outputs) -> Floats:
        """N-grams of the output, of the reference, and matched, order by order (B, 18)."""
        if any(len(texts) != 1 for texts in outputs.outputs):
            raise BadInput("chrF scores one output per source; give one")
        tokens = Tokens("characters", self.lowercase)
        references = np.flatnonzero(outputs.role == REFERENCE)
        group = outputs.group[references]
        output = np.flatnonzero(outputs.role == OUTPUT)[group]  # the output beside each reference
        length = outputs.lengths(tokens)
        columns = []
        for n in range(1, ORDER + 1):
            grams = outputs.ngrams(tokens, n)
            held = np.minimum(grams.count, grams.most(outputs.role[grams.text] == OUTPUT))
            matched = np.bincount(grams.text, weights=held, minlength=len(outputs.texts))
            theirs = np.maximum(length[references] - n + 1, 0)
            # An order that the reference is too short for does not count against the output.
            ours = np.where(theirs > 0, np.maximum(length[output] - n + 1, 0), 0)
            columns += [ours, theirs, matched[references]]
        pairs = np.stack(columns, axis=1).astype(np.float64)
        # The first of the best of each source: references stand in the order of their sources.
        best = np.lexsort((-self.score(pairs), group))
        return pairs[best[np.searchsorted(group, np.arange(len(outputs)))]]

    def score(self, totals: Floats) -> Floats:
        """The F-score (..., 18) -> (...)."""
        ours, theirs, matched = (totals[..., k::3] for k in range(3))
        both = (ours > 0) & (theirs > 0)
        orders = np.maximum(both.sum(axis=-1), 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            precision = np.where(both, matched / ours, 0.0).sum(axis=-1) / orders
            recall = np.where(both, matched / theirs, 0.0).sum(axis=-1) / orders
            found = precision + recall > 0
            score = (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)
        return np.where(found, score, 0.0)
