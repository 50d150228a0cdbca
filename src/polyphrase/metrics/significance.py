"""How sure a score is: bootstrap intervals, and tests of the difference between two systems.

Both weigh sources anew and need only the statistics per source s (B, K) of a metric f:

* Bootstrap (Efron, 1979): a resample draws B sources with replacement; with the multiplicities W
  (R, B) the R scores are f(W s), and their 2.5% and 97.5% quantiles are the interval.
* Approximate randomisation (Noreen, 1989): if two systems a and b were alike, exchanging their
  outputs for any source would change nothing. With random exchanges M in {0, 1} (R, B) and
  d = s_b - s_a, the differences f(Σ s_a + M d) - f(Σ s_b - M d) are compared with the real one:
  p = (1 + how many are at least as large) / (1 + R).

All metrics of a system share each W and M, so intervals and tests cost one matrix product each.
Rows are drawn in blocks: memory does not grow with R.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .metric import Metric
from .ngrams import Floats

RESAMPLES = 1_000
TRIALS = 10_000
_BLOCK = 1_000_000  # weights held at once

Measured = Sequence[tuple[Metric, Floats]]
"""Metrics with the statistics (B, K) of one system, for the same B sources."""


def bootstrap(measured: Measured, seed: int, resamples: int = RESAMPLES) -> list[Floats]:
    """The score of each metric on each resample (R,); equal seeds draw equal sources."""
    if not measured:
        return []
    statistics = np.hstack([values for _, values in measured])
    totals = np.concatenate(
        [w @ statistics for w in _multiplicities(len(statistics), resamples, seed)]
    )
    return _scores(measured, totals)


def interval(scores: Floats, level: float = 0.95) -> tuple[float, float]:
    """The middle `level` of the scores; resamples where the metric is undefined do not count."""
    if np.isnan(scores).all():
        return float("nan"), float("nan")
    low, high = np.nanquantile(scores, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def randomisation(one: Measured, other: Measured, seed: int, trials: int = TRIALS) -> list[float]:
    """The two-sided p-value of the difference of two systems in each metric, NaN without one."""
    if not one:
        return []
    a = np.hstack([values for _, values in one])
    b = np.hstack([values for _, values in other])
    change = b - a
    at_least = np.zeros(len(one))
    real = [_difference(m, x.sum(0), y.sum(0)) for (m, x), (_, y) in zip(one, other, strict=True)]
    for exchanged in _exchanges(len(a), trials, seed):
        moved = exchanged @ change
        ours, theirs = _scores(one, a.sum(0) + moved), _scores(other, b.sum(0) - moved)
        for k, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            # Sums in another order differ in the last bits: what is equal must count as equal.
            at_least[k] += (abs(x - y) >= real[k] - 1e-12).sum()
    p = np.where(np.isnan(real), np.nan, (1 + at_least) / (1 + trials))
    return [float(value) for value in p]


def _difference(metric: Metric, one: Floats, other: Floats) -> float:
    return float(abs(metric.score(one) - metric.score(other)))


def _scores(measured: Measured, totals: Floats) -> list[Floats]:
    borders = np.cumsum([values.shape[1] for _, values in measured])[:-1]
    parts = np.split(totals, borders, axis=-1)
    return [metric.score(part) for (metric, _), part in zip(measured, parts, strict=True)]


def _multiplicities(sources: int, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each resample draws each source, in blocks of rows."""
    random = np.random.default_rng(seed)
    for rows in _blocks(resamples, sources):
        drawn = random.integers(0, sources, (rows, sources))
        drawn += np.arange(rows)[:, None] * sources
        counts = np.bincount(drawn.ravel(), minlength=rows * sources)
        yield counts.reshape(rows, sources).astype(np.float64)


def _exchanges(sources: int, trials: int, seed: int) -> Iterator[Floats]:
    """Which sources each trial exchanges, in blocks of rows."""
    random = np.random.default_rng(seed)
    for rows in _blocks(trials, sources):
        bits: NDArray[np.uint8] = random.integers(0, 256, (rows, -(-sources // 8)), dtype=np.uint8)
        yield np.unpackbits(bits, axis=1, count=sources).astype(np.float64)


def _blocks(rows: int, sources: int) -> Iterator[int]:
    size = max(1, _BLOCK // sources)
    for start in range(0, rows, size):
        yield min(size, rows - start)
