"""What a metric is: statistics per source, and a score of their sum.

The score of a corpus is f(sum_b s_b) for statistics s_b (K numbers) of each source b, with a cheap
f. So everything that weighs sources anew, a bootstrap or a test, is one product of weights (R, B)
and statistics (B, K), and no text is looked at twice.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .ngrams import Floats, Outputs


class Metric(ABC):
    """A metric with its settings; two metrics with equal signatures give equal scores."""

    name: str

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger score is the better one."""
        return True

    @property
    @abstractmethod
    def signature(self) -> dict[str, str]:
        """The settings that change the score, by name."""

    @abstractmethod
    def statistics(self, outputs: Outputs) -> Floats:
        """The statistics of each source (B, K)."""

    @abstractmethod
    def score(self, totals: Floats) -> Floats:
        """The score of summed statistics (..., K) -> (...); NaN where it is not defined."""

    def skipped(self, statistics: Floats) -> int:
        """How many sources do not count."""
        return 0


class MeanMetric(Metric):
    """The mean of one value per source; K = 2: the value and 1, or twice 0 where there is none."""

    @abstractmethod
    def values(self, outputs: Outputs) -> Floats:
        """The value of each source (B,), NaN where there is none."""

    def statistics(self, outputs: Outputs) -> Floats:
        """The value and whether it counts (B, 2)."""
        values = self.values(outputs)
        counts = ~np.isnan(values)
        return np.stack([np.where(counts, values, 0.0), counts], axis=1)

    def score(self, totals: Floats) -> Floats:
        """The mean (..., 2) -> (...)."""
        return ratio(totals[..., 0], totals[..., 1])

    def skipped(self, statistics: Floats) -> int:
        """How many sources have no value."""
        return int((statistics[:, 1] == 0).sum())


@dataclass(frozen=True)
class Score:
    """A score that says how it was made."""

    name: str
    value: float
    low: float
    """Lower end of the 95% bootstrap interval."""
    high: float
    signature: str
    """`name|setting:value|...|version:...`, as sacreBLEU's."""
    higher_is_better: bool
    rows: int
    """Rows scored, each a source with its outputs."""
    skipped: int
    """Rows among them that do not count, such as those without any 4-gram for Div-4."""


def write_signature(metric: Metric, protocol: Mapping[str, str]) -> str:
    """The settings of a metric and of the protocol that it was used under, in one line."""
    settings = {**metric.signature, **protocol}
    return "|".join([metric.name, *(f"{key}:{value}" for key, value in settings.items())])


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Numerator by denominator, NaN where that is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator > 0, numerator / denominator, np.nan)
