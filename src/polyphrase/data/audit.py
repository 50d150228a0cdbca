"""An audit of a corpus: what its parts share, and which rows are no good.

Text memorised from training and met again at test is counted, not judged: a pair or a source of a
later part *leaks* when it stands word for word in an earlier one, and *nearly* leaks when a
near-duplicate does (see `near.py`). A pair is near another one if both its source and its reference
are near-duplicates of the other's.

Each part is read once, the last part first: what a part is to be looked for in streams past it. So
the first part, which is the large one, may be larger than memory.
"""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from ..errors import BadInput
from .near import NearDuplicates
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

    Memory holds the different texts of all parts but the first, and 24 bytes per row of every part.

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
    parts: list[PartAudit] = []
    leaks: list[Leak] = []
    later: list[_Held] = []
    for name in reversed(names):
        counts, held = _Counts(max_tokens), _Held(name)
        met = [_Met(other) for other in reversed(later)]
        for block in _blocks(corpus[name]):
            counts.add(block)
            for one in met:
                one.pass_by(block)
            if name != names[0]:
                held.add(block)
        if name != names[0]:
            held.close(near_threshold)
        later.append(held)
        parts.insert(0, counts.audit(name))
        leaks[:0] = [one.leak(name) for one in met]
    return Audit(tuple(parts), tuple(leaks), max_tokens, near_threshold)


_BLOCK = 10_000


def _blocks(examples: Iterable[Example]) -> Iterator[Sequence[Example]]:
    rows = iter(examples)
    while block := list(islice(rows, _BLOCK)):
        yield block


class _Counts:
    """The counts of one part, as its rows pass by.

    What is different is told by hashes of 64 bits: among 100 million rows the chance that any two
    are taken for one is 1 in 4,000.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._rows, self._sources, self._pairs = array("q"), array("q"), array("q")
        self._identical = self._empty = self._too_long = self._longest = 0

    def add(self, block: Iterable[Example]) -> None:
        for example in block:
            source, references = example.source, example.references
            self._rows.append(hash((source, references)))
            self._sources.append(hash(source))
            self._pairs.extend(hash((source, reference)) for reference in references)
            self._identical += source in references
            texts = (source, *references)
            self._empty += not all(text.strip() for text in texts)
            length = max(len(text.split()) for text in texts)
            self._too_long += length > self._max_tokens
            self._longest = max(self._longest, length)

    def audit(self, name: str) -> PartAudit:
        return PartAudit(
            name=name,
            rows=len(self._rows),
            pairs=len(self._pairs),
            different_sources=_different(self._sources),
            different_pairs=_different(self._pairs),
            duplicates=len(self._rows) - _different(self._rows),
            identical=self._identical,
            empty=self._empty,
            too_long=self._too_long,
            longest=self._longest,
        )


def _different(hashes: "array[int]") -> int:
    return len(np.unique(np.frombuffer(hashes, dtype=np.int64)))


class _Held:
    """A part that is looked for in earlier ones: its texts by number, and its rows as numbers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.numbers: dict[str, int] = {}
        self.sources: Counter[int] = Counter()
        self.references: defaultdict[int, Counter[int]] = defaultdict(Counter)
        """The references of each source, with how many pairs they are in."""

    def add(self, block: Iterable[Example]) -> None:
        number = self.numbers
        for example in block:
            source = number.setdefault(example.source, len(number))
            self.sources[source] += 1
            for text in example.references:
                self.references[source][number.setdefault(text, len(number))] += 1

    def close(self, threshold: float) -> None:
        """Make ready to be looked for, once all rows are there."""
        self.targets = {text for texts in self.references.values() for text in texts}
        self.near = NearDuplicates(list(self.numbers), threshold)


class _Met:
    """What of a later part was met in an earlier one so far."""

    def __init__(self, later: _Held) -> None:
        self._later = later
        self._sources: set[int] = set()
        self._references: set[int] = set()
        self._pairs: set[tuple[int, int]] = set()
        self._near_sources: set[int] = set()
        self._near_pairs: set[tuple[int, int]] = set()

    def pass_by(self, block: Sequence[Example]) -> None:
        """Look for the later part in rows of the earlier one."""
        later = self._later
        texts = list(dict.fromkeys(text for row in block for text in (row.source, *row.references)))
        near: defaultdict[str, set[int]] = defaultdict(set)
        for place, number in later.near.among(texts):
            near[texts[place]].add(number)
        for row in block:
            like_source = near.get(row.source, set()) & later.sources.keys()
            self._near_sources |= like_source
            same_source = later.numbers.get(row.source, -1)
            if same_source in later.sources:
                self._sources.add(same_source)
            for text in row.references:
                like_reference = near.get(text, set())
                for source in like_source:
                    both = like_reference & later.references[source].keys()
                    self._near_pairs.update((source, reference) for reference in both)
                same_reference = later.numbers.get(text, -1)
                if same_reference in later.targets:
                    self._references.add(same_reference)
                if same_reference in later.references.get(same_source, ()):
                    self._pairs.add((same_source, same_reference))

    def leak(self, earlier: str) -> Leak:
        rows, references = self._later.sources, self._later.references
        return Leak(
            earlier=earlier,
            later=self._later.name,
            pairs=sum(references[source][text] for source, text in self._pairs),
            sources=sum(rows[source] for source in self._sources),
            references=sum(
                count
                for counts in references.values()
                for text, count in counts.items()
                if text in self._references
            ),
            near_pairs=sum(references[source][text] for source, text in self._near_pairs),
            near_sources=sum(rows[source] for source in self._near_sources),
        )
