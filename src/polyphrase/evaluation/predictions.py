"""Outputs to be scored, whoever made them, and what they are scored against.

The project's own format is JSONL, one object per source in the order of the input:

    {"source": str, "candidates": [{"text": str, ...}, ...], "mean": str,
     "model": str, "seed": int, "spread": float}

All but the candidates may be missing; `mean` is the output from the posterior's mean. Also read: a
JSONL of lists of strings, a JSONL of objects with one list of strings under any name, and plain
text with one output per line. Any of these may be `.gz`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..data.readers import is_plain_text, read_examples, read_lines, read_records, read_sources
from ..errors import BadInput


@dataclass(frozen=True)
class Predictions:
    """The outputs of one system for B sources."""

    path: str
    candidates: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...] | None = None
    means: tuple[str, ...] | None = None
    """For each source the output from the posterior's mean."""
    model: str | None = None
    spread: float | None = None
    """The knob for diversity that the system was run with."""

    def __len__(self) -> int:
        return len(self.candidates)


def read_predictions(path: str | Path) -> Predictions:
    """Read the outputs of a system.

    Raises:
        BadInput: for a file that is empty or in another format, and for an empty output.
    """
    name = str(path).removesuffix(".gz").lower()
    if not name.endswith((".jsonl", ".ndjson")):
        return _plain(path)
    rows = [_row(value, where) for where, value in read_records(path)]
    first = rows[0]
    for number, row in enumerate(rows, start=1):
        for field in ("source", "mean"):
            if (field in row) != (field in first):
                here, there = (number, 1) if field in first else (1, number)
                raise BadInput(
                    f"{path}, line {here}: no {field!r}, which line {there} has; "
                    "give it in all lines or in none"
                )
    return Predictions(
        path=str(path),
        candidates=tuple(row["candidates"] for row in rows),
        sources=tuple(row["source"] for row in rows) if "source" in first else None,
        means=tuple(row["mean"] for row in rows) if "mean" in first else None,
        model=_only(row.get("model") for row in rows),
        spread=_only(row.get("spread") for row in rows),
    )


@dataclass(frozen=True)
class References:
    """What the outputs are scored against: B rows."""

    path: str
    references: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.references)

    def grouped(self) -> "References":
        """Each different source once, in the order of its first row, with all its references."""
        if self.sources is None:
            raise BadInput(f"{self.path} tells no sources to group by; give a file of pairs")
        of: dict[str, list[str]] = {}
        for source, references in zip(self.sources, self.references, strict=True):
            of.setdefault(source, []).extend(references)
        return References(self.path, tuple(map(tuple, of.values())), tuple(of))


def read_references(paths: Sequence[str | Path], sources: str | Path | None = None) -> References:
    """Read the references.

    Args:
        paths: one file of sources with their references in any format of `read_examples`; or one
            or more parallel texts with a reference per line.
        sources: a file of the sources for references that come without them.

    Raises:
        BadInput: for files that are not parallel, and for a row without any words to compare with.
    """
    first = str(paths[0])
    if len(paths) == 1 and not is_plain_text(first):
        rows = list(read_examples(first))
        own = tuple(row.source for row in rows)
        return References(first, _written([row.references for row in rows], first), own)
    columns = [list(read_lines(path)) for path in paths]
    for path, column in zip(paths, columns, strict=True):
        if not column or len(column) != len(columns[0]):
            raise BadInput(
                f"{path} has {len(column):,} lines where {paths[0]} has {len(columns[0]):,}; "
                "references in several texts must be parallel"
            )
    known = tuple(read_sources(sources)) if sources is not None else None
    if known is not None and len(known) != len(columns[0]):
        raise BadInput(f"{sources} has {len(known):,} sources for {len(columns[0]):,} references")
    return References(first, _written(list(zip(*columns, strict=True)), first), known)


def _written(rows: Sequence[Sequence[str]], path: str) -> tuple[tuple[str, ...], ...]:
    """The references without the empty ones that fill up the rows of those who have fewer."""
    for number, row in enumerate(rows, start=1):
        if not any(text.strip() for text in row):
            raise BadInput(
                f"{path}, row {number}: the reference is empty; write one, or leave the row out "
                "here and in the outputs"
            )
    return tuple(tuple(text for text in row if text.strip()) for row in rows)


def check_rows(predictions: Predictions, references: References) -> None:
    """See that outputs and references belong together row by row.

    Raises:
        BadInput: when there are more of one than of the other, or their sources differ.
    """
    ours, theirs = predictions.sources, references.sources
    if len(predictions) != len(references):
        message = (
            f"{predictions.path} has outputs for {len(predictions):,} sources, "
            f"{references.path} has {len(references):,} rows"
        )
        if theirs is not None and len(predictions) == len(set(theirs)):
            raise BadInput(f"{message} of as many different sources: score by source with --group")
        raise BadInput(f"{message}; give one line of outputs per row")
    if ours is None or theirs is None:
        return
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True), start=1):
        if one.split() != other.split():
            moved = sorted(map(str.split, ours)) == sorted(map(str.split, theirs))
            how = "the same sources in another order" if moved else "other sources"
            raise BadInput(
                f"{predictions.path} and {references.path} hold {how}: row {number} is "
                f"{_short(one)} in the outputs and {_short(other)} in the references"
            )


def check_samples(predictions: Predictions, samples: int) -> None:
    """See that every source has as many outputs as the protocol needs."""
    for number, texts in enumerate(predictions.candidates, start=1):
        if len(texts) < samples:
            named = f"source {number}"
            if predictions.sources is not None:
                named += f" ({_short(predictions.sources[number - 1])})"
            raise BadInput(
                f"{predictions.path}, {named}: {len(texts)} of the {samples} outputs that the "
                "protocol needs; generate more, or score fewer of all with --samples"
            )


def by_source(one: Predictions, rows: References, groups: References) -> Predictions:
    """Outputs for the different sources: the first ones of each, where there are some per row."""
    if len(one) != len(rows) or rows.sources is None:
        return one
    check_rows(one, rows)
    first: dict[str, int] = {}
    for row, source in enumerate(rows.sources):
        first.setdefault(source, row)
    kept = list(first.values())
    return replace(
        one,
        candidates=tuple(one.candidates[row] for row in kept),
        sources=groups.sources,
        means=None if one.means is None else tuple(one.means[row] for row in kept),
    )


def _plain(path: str | Path) -> Predictions:
    outputs = tuple(read_lines(path))
    if not outputs:
        raise BadInput(f"{path} is empty; give one output per line")
    for number, output in enumerate(outputs, start=1):
        _check(output, f"{path}, line {number}", "the output")
    return Predictions(str(path), tuple((output,) for output in outputs))


def _row(value: Any, where: str) -> dict[str, Any]:
    """One line, its candidates as texts and its fields checked."""
    if isinstance(value, list):
        value = {"candidates": value}
    if not isinstance(value, dict):
        raise BadInput(f"{where}: {str(value)[:40]!r} is neither an object nor a list of outputs")
    row: dict[str, Any] = {"candidates": _candidates(value, where)}
    for field in ("source", "mean"):
        if field in value:
            row[field] = value[field]
            _check(row[field], where, repr(field))
    for field, kind in (("model", str), ("spread", (int, float))):
        if isinstance(value.get(field), kind):
            row[field] = value[field]
    return row


def _candidates(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    if "candidates" in row:
        name = "candidates"
    else:
        lists = [name for name, value in row.items() if isinstance(value, list)]
        lists = [name for name in lists if name not in ("references", "refs", "targets")]
        if len(lists) != 1:
            held = ", ".join(repr(item) for item in lists) or "none"
            raise BadInput(f"{where}: lists found: {held}; name the one of outputs 'candidates'")
        name = lists[0]
    items = row[name]
    if not isinstance(items, list) or not items:
        raise BadInput(f"{where}: {name!r} holds no outputs; give at least one")
    texts: list[Any] = [item.get("text") if isinstance(item, dict) else item for item in items]
    for number, text in enumerate(texts, start=1):
        _check(text, where, f"output {number}")
    return tuple(texts)


def _check(text: Any, where: str, what: str) -> None:
    if not isinstance(text, str):
        raise BadInput(f"{where}: {what} is no text")
    if not text.strip():
        raise BadInput(f"{where}: {what} is empty; a system has to say something for every source")


def _only(values: Any) -> Any:
    """The one value that all lines agree on, else None."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _short(text: str) -> str:
    return repr(text if len(text) <= 50 else text[:49] + "…")
