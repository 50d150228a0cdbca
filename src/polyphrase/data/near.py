"""Near-duplicates: MinHash finds candidates, Jaccard decides.

A text is the set S of the character 5-grams of its normal form; two texts are near-duplicates when
|S ∩ S'| / |S ∪ S'| reaches a threshold. MinHash (Broder, 1997) keeps for each of 64 hash functions
the smallest value over S: two sets agree there with a probability equal to their Jaccard index.
Signatures are cut into 16 bands of 4 values, and texts that agree in one whole band are compared
exactly, so nothing below the threshold is reported, and of what has an index of 0.8 one in 5,000
is missed. One numpy pass over all 5-grams, in blocks of bounded memory.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..text import normal_form

SHINGLE = 5
BANDS, ROWS = 16, 4
_BLOCK = 2_000  # texts whose 5-grams are hashed at once


class NearDuplicates:
    """Texts in which near-duplicates of others are found; 256 bytes each beside the text itself.

    Texts with equal normal forms are near-duplicates with a Jaccard index of 1.
    """

    def __init__(self, texts: Sequence[str], threshold: float = 0.8) -> None:
        self._texts, self._threshold = texts, threshold
        keys = _band_keys(texts)
        self._order = np.argsort(keys, axis=0, kind="stable")
        self._ranked = np.take_along_axis(keys, self._order, axis=0)

    def among(self, others: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Pairs (i, j): `others[i]` is a near-duplicate of text j here; each pair once."""
        for i, j in self._candidates(_band_keys(others)):
            one, other = _shingles(others[i]), _shingles(self._texts[j])
            shared = len(one & other)
            if shared >= self._threshold * (len(one) + len(other) - shared):
                yield i, j

    def _candidates(self, keys: NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
        """Pairs that agree in at least one band, each once."""
        found = []
        for band in range(BANDS):
            ranked = self._ranked[:, band]
            first = np.searchsorted(ranked, keys[:, band], side="left")
            count = np.searchsorted(ranked, keys[:, band], side="right") - first
            i = np.repeat(np.arange(len(keys)), count)
            inside = np.arange(len(i)) - np.repeat(np.cumsum(count) - count, count)
            j = self._order[np.repeat(first, count) + inside, band]
            found.append(np.unique(i * len(ranked) + j))
        for pair in np.unique(np.concatenate(found)).tolist():
            yield divmod(pair, len(self._texts))


@functools.lru_cache(maxsize=10_000)
def _shingles(text: str) -> frozenset[str]:
    form = normal_form(text)
    return frozenset(form[at : at + SHINGLE] for at in range(max(1, len(form) - SHINGLE + 1)))


def _band_keys(texts: Sequence[str]) -> NDArray[np.uint64]:
    """One hash per text and band (B, BANDS)."""
    random = np.random.default_rng(0)
    # Multiply-shift hashing (Dietzfelbinger et al., 1997): odd factors, high bits of the products.
    factors = random.integers(0, 2**63, size=BANDS * ROWS, dtype=np.uint64) * 2 + 1
    mixers = random.integers(0, 2**63, size=ROWS, dtype=np.uint64) * 2 + 1
    keys = np.empty((len(texts), BANDS), dtype=np.uint64)
    for start in range(0, len(texts), _BLOCK):
        grams, starts = _hashed_shingles(list(map(normal_form, texts[start : start + _BLOCK])))
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
