"""An audit of a corpus: what its parts share, and which rows are no good.

Text memorised from training and met again at test is counted, not judged: a pair or a source of a
later part *leaks* when it stands word for word in an earlier one, and *nearly* leaks when a
near-duplicate does (see `near.py`). A pair is near another one if both its source and its reference
are near-duplicates of the other's.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from ..errors import BadInput
from .near import near_duplicates
from .readers import Example

PARTS: Mapping[str, frozenset[str]] = {
    "train": frozenset({"train", "training", "trn"}),
    "validation": frozenset({"validation", "valid", "val", "dev", "tune"}),
    "test": frozenset({"test", "testing", "tst"}),
}


@dataclass(frozen=True)
class PartAudit:
    """What one file holds; all counts are of rows unless the name says otherwise."""

    name: str
    rows: int
    pairs: int
    """(source, reference) pairs: a row with four references holds four."""
    different_sources: int
    different_pairs: int
    duplicates: int
    """Rows that repeat an earlier row whole."""
    identical: int
    """Rows with a reference equal to the source."""
    empty: int
    """Rows with an empty source or reference."""
    too_long: int
    """Rows with more tokens than `max_tokens` in the source or a reference."""
    longest: int
    """Tokens of the longest source or reference."""


@dataclass(frozen=True)
class Leak:
    """What a later part shares with an earlier one, counted in the later part."""

    earlier: str
    later: str
    pairs: int
    sources: int
    references: int
    """Pairs whose reference is a reference of the earlier part too, whatever the source."""
    near_pairs: int
    """Pairs with a near-duplicate in the earlier part; those that leak word for word included."""
    near_sources: int


@dataclass(frozen=True)
class Audit:
    """The whole finding, and the settings it was made with."""

    parts: tuple[PartAudit, ...]
    leaks: tuple[Leak, ...]
    max_tokens: int
    near_threshold: float


def part_name(path: str | Path) -> str:
    """`train`, `validation` or `test` if the file name says so, else the name without ending."""
    stem = Path(path).name.split(".")[0]
    words = set(re.split(r"[^a-z]+", stem.lower()))
    return next((part for part, names in PARTS.items() if words & names), stem)


def audit(
    corpus: Mapping[str, Iterable[Example]], max_tokens: int = 50, near_threshold: float = 0.8
) -> Audit:
    """Audit the parts of a corpus.

    Memory holds the different texts of the corpus once, and two numbers per pair.

    Args:
        corpus: the parts by name; `train` before `validation` before `test`, others in the order
            given.
        max_tokens: whitespace tokens above which a row is too long.
        near_threshold: the Jaccard index from which two texts are near-duplicates.
    """
    if not 0 < near_threshold <= 1:
        raise BadInput(f"a near-duplicate threshold of {near_threshold} is not above 0 and up to 1")
    order = list(PARTS)
    names = sorted(corpus, key=lambda name: order.index(name) if name in order else len(order))
    texts = _Texts()
    parts = {name: _Part(name, corpus[name], texts, max_tokens) for name in names}
    leaks = [
        _leak(parts[earlier], parts[later], texts, near_threshold)
        for earlier, later in combinations(names, 2)
    ]
    return Audit(
        tuple(part.audit for part in parts.values()), tuple(leaks), max_tokens, near_threshold
    )


class _Texts(dict[str, int]):
    """Every different text of the corpus by its number."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


class _Part:
    """One part as numbers of texts, and its own counts."""

    def __init__(
        self, name: str, examples: Iterable[Example], texts: _Texts, max_tokens: int
    ) -> None:
        self.sources: Counter[int] = Counter()
        self.pairs: Counter[tuple[int, int]] = Counter()
        seen = set()
        duplicates = identical = empty = too_long = longest = 0
        for example in examples:
            source = texts[example.source]
            references = tuple(texts[reference] for reference in example.references)
            self.sources[source] += 1
            self.pairs.update((source, reference) for reference in references)
            duplicates += (source, references) in seen
            seen.add((source, references))
            identical += source in references
            row = (example.source, *example.references)
            empty += not all(text.strip() for text in row)
            length = max(len(text.split()) for text in row)
            too_long += length > max_tokens
            longest = max(longest, length)
        self.references = {reference for _, reference in self.pairs}
        self.audit = PartAudit(
            name=name,
            rows=self.sources.total(),
            pairs=self.pairs.total(),
            different_sources=len(self.sources),
            different_pairs=len(self.pairs),
            duplicates=duplicates,
            identical=identical,
            empty=empty,
            too_long=too_long,
            longest=longest,
        )


def _leak(earlier: _Part, later: _Part, texts: _Texts, threshold: float) -> Leak:
    by_number = list(texts)
    near_source = _near(by_number, list(later.sources), list(earlier.sources), threshold)
    near_reference = _near(
        by_number,
        list(later.references),
        list(earlier.references),
        threshold,
    )
    references_of: defaultdict[int, set[int]] = defaultdict(set)
    for source, reference in earlier.pairs:
        references_of[source].add(reference)

    def is_near(source: int, reference: int) -> bool:
        alike = near_reference[reference]
        return any(alike & references_of[other] for other in near_source[source])

    return Leak(
        earlier=earlier.audit.name,
        later=later.audit.name,
        pairs=sum(n for pair, n in later.pairs.items() if pair in earlier.pairs),
        sources=sum(n for text, n in later.sources.items() if text in earlier.sources),
        references=sum(n for (_, text), n in later.pairs.items() if text in earlier.references),
        near_pairs=sum(n for pair, n in later.pairs.items() if is_near(*pair)),
        near_sources=sum(n for text, n in later.sources.items() if near_source[text]),
    )


def _near(
    by_number: Sequence[str], later: Sequence[int], earlier: Sequence[int], threshold: float
) -> Mapping[int, set[int]]:
    """For each text of the later part the near-duplicates that the earlier part holds."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    pairs = near_duplicates(
        [by_number[text] for text in later], [by_number[text] for text in earlier], threshold
    )
    for i, j in pairs:
        found[later[i]].add(earlier[j])
    return found
