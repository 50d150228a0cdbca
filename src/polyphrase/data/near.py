"""Near-duplicates between two lists of texts: MinHash finds candidates, Jaccard decides.

A text is the set S of the character 5-grams of its normal form; two texts are near-duplicates when
|S ∩ S'| / |S ∪ S'| reaches a threshold. MinHash (Broder, 1997) keeps for each of 64 hash functions
the smallest value over S: two sets agree there with a probability equal to their Jaccard index.
Signatures are cut into 16 bands of 4 values, and texts that agree in one whole band are compared
exactly, so nothing below the threshold is reported, and of what has an index of 0.8 one in 5,000
is missed. One numpy pass over all 5-grams, in blocks of bounded memory.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..text import normal_form

SHINGLE = 5
BANDS, ROWS = 16, 4
_BLOCK = 2_000  # texts whose 5-grams are hashed at once


def near_duplicates(
    left: Sequence[str], right: Sequence[str], threshold: float = 0.8
) -> Iterator[tuple[int, int]]:
    """Pairs (i, j) such that `left[i]` and `right[j]` are near-duplicates, each pair once.

    Texts with equal normal forms are near-duplicates with a Jaccard index of 1.
    """
    forms = [[normal_form(text) for text in side] for side in (left, right)]
    keys = [_band_keys(side) for side in forms]
    sets: list[dict[int, frozenset[str]]] = [{}, {}]

    def shingles(side: int, index: int) -> frozenset[str]:
        if index not in sets[side]:
            form = forms[side][index]
            grams = (form[at : at + SHINGLE] for at in range(max(1, len(form) - SHINGLE + 1)))
            sets[side][index] = frozenset(grams)
        return sets[side][index]

    for i, j in _candidates(*keys):
        one, other = shingles(0, i), shingles(1, j)
        shared = len(one & other)
        if shared >= threshold * (len(one) + len(other) - shared):
            yield i, j


def _candidates(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
    """Pairs of rows that agree in at least one band, each once."""
    found = []
    for band in range(BANDS):
        order = np.argsort(right[:, band], kind="stable")
        ranked = right[order, band]
        first = np.searchsorted(ranked, left[:, band], side="left")
        count = np.searchsorted(ranked, left[:, band], side="right") - first
        i = np.repeat(np.arange(len(left)), count)
        inside = np.arange(len(i)) - np.repeat(np.cumsum(count) - count, count)
        j = order[np.repeat(first, count) + inside]
        found.append(np.unique(i * len(right) + j))
    for pair in np.unique(np.concatenate(found)).tolist():
        yield divmod(pair, len(right))


def _band_keys(forms: Sequence[str]) -> NDArray[np.uint64]:
    """One hash per text and band (B, BANDS)."""
    random = np.random.default_rng(0)
    # Multiply-shift hashing (Dietzfelbinger et al., 1997): odd factors, high bits of the products.
    factors = random.integers(0, 2**63, size=BANDS * ROWS, dtype=np.uint64) * 2 + 1
    mixers = random.integers(0, 2**63, size=ROWS, dtype=np.uint64) * 2 + 1
    keys = np.empty((len(forms), BANDS), dtype=np.uint64)
    for start in range(0, len(forms), _BLOCK):
        grams, starts = _hashed_shingles(forms[start : start + _BLOCK])
        signature = np.empty((len(starts), BANDS * ROWS), dtype=np.uint64)
        for column, factor in enumerate(factors):
            signature[:, column] = np.minimum.reduceat((grams * factor) >> 32, starts)
        bands = signature.reshape(-1, BANDS, ROWS)
        keys[start : start + len(starts)] = (bands * mixers).sum(axis=2, dtype=np.uint64)
    return keys


def _hashed_shingles(forms: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The 64-bit hashes of the 5-grams of all texts end to end, and where each text begins."""
    # A text shorter than a 5-gram is padded to one: every text has a shingle.
    padded = [form.ljust(SHINGLE, "\0") for form in forms]
    codes = np.frombuffer("".join(padded).encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
    lengths = np.array([len(form) for form in padded])
    grams = np.zeros(len(codes) - SHINGLE + 1, dtype=np.uint64)
    for offset in range(SHINGLE):
        grams = (grams ^ codes[offset : offset + len(grams)]) * np.uint64(0x9E3779B97F4A7C15)
        grams ^= grams >> np.uint64(29)
    ends = np.cumsum(lengths)
    inside = np.ones(len(grams), dtype=bool)  # no 5-gram reaches from one text into the next
    for back in range(1, SHINGLE):
        inside[(ends[:-1] - back)] = False
    counts = lengths - SHINGLE + 1
    return grams[inside], np.cumsum(counts) - counts
