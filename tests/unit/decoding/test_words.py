"""The next word's distribution: n-grams that may not come twice."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import NoRepeatNGramLogitsProcessor

from polyphrase.decoding.words import repetitions


@given(
    st.integers(2, 4),
    st.integers(0, 12),
    st.integers(1, 4),
    st.integers(0, 2**31 - 1),
)
def test_repetitions_are_those_of_transformers(
    size: int, length: int, rows: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    prefix = torch.randint(0, 3, (rows, length), generator=generator)  # few words: many repeats
    expected = NoRepeatNGramLogitsProcessor(size)(prefix, torch.zeros(rows, 3))
    found = torch.zeros(rows, 3)
    repeats = repetitions(prefix, size)
    if repeats is not None:
        found = found.scatter_add(1, *repeats)
    assert torch.equal(found, expected)
