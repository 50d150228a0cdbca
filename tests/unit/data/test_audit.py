"""Counts of an audit against a corpus small enough to count by hand."""

import tracemalloc
from collections.abc import Iterator

import pytest

from polyphrase.data.audit import Leak, audit, part_name
from polyphrase.data.readers import Example
from polyphrase.errors import BadInput

TRAIN = [
    Example("A man walks his big brown dog", ("Someone walks a dog in the street",)),
    Example("A man walks his big brown dog", ("Someone walks a dog in the street",)),
    Example("A man walks his big brown dog", ("A dog is walked",)),
    Example("two words", ("two words",)),
    Example("x " * 51, ("short",)),
    Example("nothing", ("",)),
]
TEST = [
    Example("A man walks his big brown dog", ("A dog is walked", "Dogs are walked")),
    Example("a man walks his BIG, brown dog!", ("someone walks a dog in the street.",)),
    Example("A man walks his big brown dog", ("Never seen before",)),
    Example("unseen source", ("short",)),
]


def test_counts() -> None:
    found = audit({"test": TEST, "train": TRAIN})
    train, test = found.parts
    assert (train.name, test.name) == ("train", "test")
    assert (train.rows, train.pairs, train.different_sources, train.different_pairs) == (6, 6, 4, 5)
    assert (train.duplicates, train.identical, train.empty, train.too_long) == (1, 1, 1, 1)
    assert (train.longest, test.longest) == (51, 7)
    assert (test.rows, test.pairs, test.different_sources) == (4, 5, 3)
    assert found.leaks == (
        Leak("train", "test", pairs=1, sources=2, references=2, near_pairs=2, near_sources=3),
    )


def test_a_pair_is_near_only_on_both_sides() -> None:
    train = [
        Example("one first long source text", ("one first long target text",)),
        Example("some second other source here", ("some second other target here",)),
    ]
    test = [Example("one first long source text", ("some second other target here",))]
    (leak,) = audit({"train": train, "test": test}).leaks
    assert (leak.sources, leak.references, leak.pairs, leak.near_pairs) == (1, 1, 0, 0)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("data/trn.tsv.gz", "train"),
        ("my_train.jsonl", "train"),
        ("valid.tsv", "validation"),
        ("gyafc.dev.tsv", "gyafc"),
        ("dev-2.tsv", "validation"),
        ("Test.csv", "test"),
        ("contest.csv", "contest"),
    ],
)
def test_part_names(path: str, part: str) -> None:
    assert part_name(path) == part


def test_a_threshold_out_of_range() -> None:
    with pytest.raises(BadInput, match=r"threshold of 1\.5"):
        audit({"train": TRAIN}, near_threshold=1.5)


def rows(count: int) -> Iterator[Example]:
    for k in range(count):
        text = " ".join(str(7919 * k * j % 1_000_003) for j in range(1, 31))
        yield Example(f"{text} source", (f"{text} target",))


def test_the_first_part_may_be_larger_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyphrase.data.audit._BLOCK", 500)
    peaks = []
    for size in (1_000, 4_000):
        tracemalloc.start()
        found = audit({"train": rows(size), "test": rows(10)})
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found.parts[0].different_pairs == size
        assert (found.leaks[0].pairs, found.leaks[0].near_pairs) == (10, 10)
    # The texts of a row are 400 bytes; 24 are kept, and as many while the different ones are told.
    assert peaks[1] - peaks[0] < 3_000 * 60


def test_every_part_is_read_once() -> None:
    read = []

    def part(name: str) -> Iterator[Example]:
        read.append(name)
        yield Example("a", ("b",))

    audit({name: part(name) for name in ("other", "test", "train", "valid")})
    assert sorted(read) == ["other", "test", "train", "valid"]
