"""Uniqueness, copies and overlap on sets small enough to count by eye."""

import pytest

from polyphrase.metrics.copying import Copies, Overlap
from polyphrase.metrics.diversity import Unique
from polyphrase.metrics.metric import Metric
from polyphrase.metrics.ngrams import Outputs
from polyphrase.text import normal_form

OUTPUTS = Outputs(
    [["A cat .", "a cat!", "a  cat", "a dog"], ["Same", "Same"]],
    sources=["A cat .", "other"],
)


def score(metric: Metric, outputs: Outputs = OUTPUTS) -> float:
    return float(metric.score(metric.statistics(outputs).sum(axis=0)))


def test_unique() -> None:
    assert score(Unique()) == pytest.approx((4 / 4 + 1 / 2) / 2)
    assert score(Unique("unique-normal", normalised=True)) == pytest.approx((2 / 4 + 1 / 2) / 2)


def test_copies() -> None:
    assert score(Copies()) == pytest.approx((1 / 4 + 0) / 2)
    assert score(Copies(normalised=True)) == pytest.approx((3 / 4 + 0) / 2)


def test_overlap_counts_each_token_as_often_as_the_source_has_it() -> None:
    outputs = Outputs([["a a b", "c"], ["d e"]], sources=["a b", "d d"])
    assert score(Overlap(), outputs) == pytest.approx(((2 / 3 + 0) / 2 + 1 / 2) / 2)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Hello , World !", "helloworld"),
        ("“Straße”…", "strasse"),
        ("a\u00a0b\u200bc\u3000d", "abcd"),
        ("$5 ≠ 5€ 😀", "$5≠5€😀"),
        ("नमस्ते।", "नमस्ते"),
        ("...", ""),
    ],
)
def test_the_normal_form(text: str, form: str) -> None:
    assert normal_form(text) == form
