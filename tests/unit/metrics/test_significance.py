"""Intervals and tests against enumeration, a formula, and their own promises."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from polyphrase.metrics.bleu import Bleu
from polyphrase.metrics.diversity import Unique
from polyphrase.metrics.metric import Metric, ratio
from polyphrase.metrics.ngrams import Floats, Outputs
from polyphrase.metrics.significance import bootstrap, interval, randomisation


@dataclass(frozen=True)
class Ratio(Metric):
    """A sum by a sum: not a mean, as BLEU is none."""

    name: str = "ratio"

    @property
    def signature(self) -> dict[str, str]:
        return {}

    def statistics(self, outputs: Outputs) -> Floats:
        raise AssertionError("the tests give the statistics")

    def score(self, totals: Floats) -> Floats:
        return ratio(totals[..., 0], totals[..., 1])


def measurements(seed: int, sources: int, shift: float = 0.0) -> Floats:
    random = np.random.default_rng(seed)
    sizes = random.integers(5, 20, sources)
    return np.stack([random.binomial(sizes, 0.5 + shift), sizes], axis=1).astype(np.float64)


def test_a_resample_scores_what_its_texts_score() -> None:
    outputs = [["a b c", "a b"], ["c c d", "d"], ["e f g h", "e f g h"]]
    references = [["a b d"], ["c d"], ["e f h"]]
    metrics: list[Metric] = [Bleu(), Unique()]
    measured = [(one, one.statistics(Outputs(outputs, references))) for one in metrics]
    resampled = bootstrap(measured, seed=3, resamples=50)
    possible: list[set[float]] = [set(), set()]
    for drawn in itertools.product(range(3), repeat=3):
        again = Outputs([outputs[k] for k in drawn], [references[k] for k in drawn])
        for found, (metric, _) in zip(possible, measured, strict=True):
            found.add(round(float(metric.score(metric.statistics(again).sum(axis=0))), 12))
    for scores, found in zip(resampled, possible, strict=True):
        assert {round(float(score), 12) for score in scores} <= found
        assert len(set(scores.tolist())) > 2


def test_the_bootstrap_of_a_mean_has_its_standard_error() -> None:
    values = np.random.default_rng(0).gamma(2.0, size=400)
    measured = [(Unique(), np.stack([values, np.ones(400)], axis=1))]
    (scores,) = bootstrap(measured, seed=1, resamples=4000)
    error = values.std() / np.sqrt(400)
    assert scores.std() == pytest.approx(error, rel=0.05)
    low, high = interval(scores)
    assert (low, high) == pytest.approx(
        (values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=error / 4
    )


def test_equal_seeds_draw_equal_sources_whatever_is_measured() -> None:
    one, other = measurements(0, 30), measurements(1, 30)
    alone = bootstrap([(Ratio(), one)], seed=7)
    beside = bootstrap([(Ratio(), other), (Ratio(), one)], seed=7)
    np.testing.assert_allclose(alone[0], beside[1], rtol=1e-12)
    assert not np.allclose(alone[0], bootstrap([(Ratio(), one)], seed=8)[0])


def test_randomisation_is_the_enumeration_of_all_exchanges() -> None:
    metric = Ratio()
    for seed in range(4):
        a, b = measurements(seed, 10), measurements(seed + 50, 10, shift=0.1)
        real = abs(metric.score(a.sum(0)) - metric.score(b.sum(0)))
        exchanged = np.array(list(itertools.product([0.0, 1.0], repeat=10))) @ (b - a)
        differences = abs(metric.score(a.sum(0) + exchanged) - metric.score(b.sum(0) - exchanged))
        exact = float((differences >= real - 1e-12).mean())
        (p,) = randomisation([(metric, a)], [(metric, b)], seed=0, trials=20_000)
        assert p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20_000) + 1e-4)


def test_p_is_uniform_for_systems_that_are_alike() -> None:
    pairs = [(measurements(2 * k, 40), measurements(2 * k + 1, 40)) for k in range(300)]
    metric = Ratio()
    p_values = randomisation(
        [(metric, a) for a, _ in pairs], [(metric, b) for _, b in pairs], seed=0, trials=400
    )
    steps = np.arange(1, 301) / 300
    assert abs(np.sort(p_values) - steps).max() < 1.63 / np.sqrt(300)  # Kolmogorov-Smirnov, 1%


def test_equal_systems_do_not_differ_and_other_ones_do() -> None:
    a = measurements(0, 200)
    assert randomisation([(Ratio(), a)], [(Ratio(), a)], seed=0) == [1.0]
    (p,) = randomisation([(Ratio(), a)], [(Ratio(), measurements(1, 200, 0.2))], seed=0)
    assert p < 0.001


def test_what_is_not_defined() -> None:
    nothing = np.zeros((5, 2))
    (scores,) = bootstrap([(Ratio(), nothing)], seed=0, resamples=10)
    assert np.isnan(interval(scores)).all()
    assert np.isnan(randomisation([(Ratio(), nothing)], [(Ratio(), nothing)], 0, trials=10)).all()
    assert bootstrap([], seed=0) == []
    assert randomisation([], [], seed=0) == []
