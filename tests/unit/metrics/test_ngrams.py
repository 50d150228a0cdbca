"""N-gram counts against counting in plain Python."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyphrase.errors import BadInput
from polyphrase.metrics import ngrams
from polyphrase.metrics.bleu import SelfBleu
from polyphrase.metrics.ngrams import WORDS, Outputs, Tokens

TEXT = st.lists(st.sampled_from("abcd"), max_size=8).map(" ".join)
ROWS = st.lists(st.lists(TEXT, max_size=3), min_size=1, max_size=4)


def counted(outputs: Outputs, order: int) -> dict[tuple[int, tuple[str, ...]], dict[int, int]]:
    found: dict[tuple[int, tuple[str, ...]], dict[int, int]] = {}
    for text, (words, group) in enumerate(
        zip(map(str.split, outputs.texts), outputs.group.tolist(), strict=True)
    ):
        grams = Counter(tuple(words[at : at + order]) for at in range(len(words) - order + 1))
        for gram, count in grams.items():
            found.setdefault((group, gram), {})[text] = count
    return found


@pytest.mark.parametrize("crowded", [False, True])
@given(outputs=ROWS, order=st.integers(1, 5))
def test_counts(crowded: bool, outputs: list[list[str]], order: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if crowded:  # as if every product might overflow, so that n-grams get small numbers
            patch.setattr(ngrams, "_LARGEST", 0)
        made = Outputs(outputs, [["a b"]] * len(outputs), ["c a b"] * len(outputs))
        grams = made.ngrams(WORDS, order)
    entries = np.split(np.arange(len(grams.text)), grams.starts[1:]) if len(grams.text) else []
    ours = [
        dict(zip(grams.text[e].tolist(), grams.count[e].tolist(), strict=True)) for e in entries
    ]
    theirs = list(counted(made, order).values())
    assert sorted(map(sorted, map(dict.items, ours))) == sorted(
        map(sorted, map(dict.items, theirs))
    )
    assert all(list(texts) == sorted(texts) for texts in ours)


@given(outputs=ROWS, order=st.integers(1, 3))
def test_the_most_here_and_elsewhere(outputs: list[list[str]], order: int) -> None:
    made = Outputs(outputs)
    grams = made.ngrams(WORDS, order)
    chosen = np.arange(len(made.texts))[grams.text] % 3 > 0
    most, elsewhere = grams.most(chosen).tolist(), grams.most_elsewhere(chosen).tolist()
    for e, (gram, text) in enumerate(zip(grams.gram.tolist(), grams.text.tolist(), strict=True)):
        held = {
            int(grams.text[k]): int(grams.count[k])
            for k in np.flatnonzero(grams.gram == gram)
            if chosen[k]
        }
        assert most[e] == max(held.values(), default=0)
        if chosen[e]:
            assert elsewhere[e] == max((n for t, n in held.items() if t != text), default=0)


@pytest.mark.parametrize(
    ("tokens", "lengths"),
    [
        (WORDS, [3, 2]),
        (Tokens("13a"), [4, 2]),
        (Tokens("characters"), [6, 2]),
    ],
)
def test_lengths(tokens: Tokens, lengths: list[int]) -> None:
    assert Outputs([["ab c de.", "A a"]]).lengths(tokens).tolist() == lengths


def test_case() -> None:
    outputs = Outputs([["A a A"]])
    assert outputs.ngrams(WORDS, 1).count.tolist() == [2, 1]
    assert outputs.ngrams(Tokens(lowercase=True), 1).count.tolist() == [3]


def test_memory_grows_with_the_outputs_of_one_source_and_not_with_their_square() -> None:
    peaks = []
    for size in (2_000, 4_000, 8_000):
        texts = [f"a {k} b {k % 7} c {k % 11}" for k in range(size)]
        tracemalloc.start()
        SelfBleu().statistics(Outputs([texts]))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 2.5 * peaks[1] < 6.25 * peaks[0]


def test_what_does_not_belong_together() -> None:
    with pytest.raises(BadInput, match="2 references for 1 sources with outputs"):
        Outputs([["a"]], [["b"], ["c"]])
