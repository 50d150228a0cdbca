"""Splits without leaks: which source belongs to which part, as a small file without the texts.

A source goes where its hash sends it: with u(s) in [0, 1) from SHA-256 of the seed and the normal
form of s, it is in test for u < t, in validation for t <= u < t + v, else in train. So the split
does not depend on the order of the rows, and sources that differ in case, punctuation or spacing
stay together. By `source` all rows of a source stay in one part. By `text` all rows that are
connected through equal texts do, on whichever side those stand: no text of test is met in training.

The split file is JSON: the settings; the number of `rows` and the `digest` (SHA-256) of the sorted
hashes of the different sources, by which data that the split was not made for is refused; and for
`validation` and `test` the hashes of their sources (SHA-256 of the normal form, 16 hex digits,
sorted). Every other source is in train.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ..errors import BadInput
from ..files import disk_errors, whole_file, write_text
from ..settings import from_mapping, to_mapping
from ..text import normal_form
from .readers import Example, as_line

FORMAT: Final = "polyphrase split 1"
By = Literal["source", "text"]


@dataclass(frozen=True)
class Split:
    """An assignment of sources to parts; what is not listed is in train."""

    by: By
    seed: int
    rows: int
    digest: str
    validation: tuple[str, ...]
    test: tuple[str, ...]
    format: Literal["polyphrase split 1"] = FORMAT


def make_split(
    rows: Iterable[Example],
    by: By = "source",
    validation: float = 0.05,
    test: float = 0.1,
    seed: int = 0,
) -> Split:
    """Split a corpus.

    Memory holds one hash per different source (by text: per different text).

    Args:
        rows: the rows of all parts together.
        by: what may not be shared between parts, sources or any text.
        validation: the share of the sources that goes to validation.
        test: the share that goes to test.
        seed: another seed sends other sources there.
    """
    if min(validation, test) < 0 or validation + test >= 1:
        raise BadInput(
            f"validation {validation} and test {test} are no shares of the sources: "
            "give two numbers from 0 that are together below 1"
        )
    groups = _Groups()
    sources: set[str] = set()
    count = 0
    for row in rows:
        count += 1
        source = source_hash(row.source)
        sources.add(source)
        if by == "text":
            for reference in row.references:
                groups.join(source, source_hash(reference))
    # The name of a group is its smallest hash; hashed again, a large group has no smaller u.
    part_of = {source: _part(groups.name(source), seed, validation, test) for source in sources}
    listed = {
        part: tuple(sorted(source for source in sources if part_of[source] == part))
        for part in ("validation", "test")
    }
    return Split(by, seed, count, _digest(sources), listed["validation"], listed["test"])


def write_split(path: str | Path, split: Split) -> None:
    """Write the split file."""
    values = {"format": FORMAT, **to_mapping(split)}  # what it is comes first
    write_text(path, json.dumps(values, indent=1) + "\n")


def read_split(path: str | Path) -> Split:
    """Read a split file."""
    with disk_errors(path):
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    try:
        values = json.loads(text)
    except json.JSONDecodeError:
        values = None
    if not isinstance(values, Mapping) or values.get("format") != FORMAT:
        raise BadInput(f"{path} is no split file; write one with polyphrase data split --out")
    return from_mapping(Split, values, str(path))


def apply_split(
    split: Split, rows: Callable[[], Iterable[Example]]
) -> Iterator[tuple[str, Example]]:
    """Each row with its part, in the order given.

    Args:
        split: where the sources belong.
        rows: starts a pass over the corpus; there are two, since the first must show that this is
            the corpus that the split was made for.
    """
    hashes = [source_hash(row.source) for row in rows()]
    if (len(hashes), _digest(set(hashes))) != (split.rows, split.digest):
        raise BadInput(
            f"the split was made for {split.rows:,} rows, these are {len(hashes):,}"
            + (" with other sources" if len(hashes) == split.rows else "")
            + "; give the files that it was made for"
        )
    part_of = dict.fromkeys(split.validation, "validation") | dict.fromkeys(split.test, "test")
    for row in rows():
        yield part_of.get(source_hash(row.source), "train"), row


def write_parts(
    folder: str | Path, split: Split, rows: Callable[[], Iterable[Example]]
) -> dict[str, tuple[int, int]]:
    """Write `train`, `validation` and `test` as JSONL into a folder.

    Returns:
        The rows and the different sources of each part.
    """
    parts = ("train", "validation", "test")
    counts = dict.fromkeys(parts, 0)
    sources: dict[str, set[str]] = {part: set() for part in parts}
    with ExitStack() as stack:
        files = {}
        for part in parts:
            path = stack.enter_context(whole_file(Path(folder) / f"{part}.jsonl"))
            files[part] = stack.enter_context(path.open("w", encoding="utf-8"))
        for part, row in apply_split(split, rows):
            files[part].write(as_line(row))
            counts[part] += 1
            sources[part].add(row.source)
    return {part: (counts[part], len(sources[part])) for part in parts}


def source_hash(text: str) -> str:
    """The hash that stands for a text in the split file."""
    return hashlib.sha256(normal_form(text).encode()).hexdigest()[:16]


def _part(group: str, seed: int, validation: float, test: float) -> str:
    bits = hashlib.sha256(f"{seed} {group}".encode()).digest()[:8]
    u = int.from_bytes(bits, "big") / 2**64
    return "test" if u < test else "validation" if u < test + validation else "train"


def _digest(sources: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(sources)).encode()).hexdigest()


class _Groups:
    """Hashes connected with each other (union-find); each group is named by its smallest hash."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def name(self, member: str) -> str:
        parent = self._parent
        while (above := parent.get(member, member)) != member:
            parent[member] = member = parent.get(above, above)  # halve the path on the way
        return member

    def join(self, one: str, other: str) -> None:
        first, second = sorted((self.name(one), self.name(other)))
        self._parent[second] = first
