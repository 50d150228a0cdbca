"""Readers: one stream of examples out of TSV, CSV, JSONL, Parquet or a Hugging Face dataset.

Every reader holds one row (Parquet: one batch of rows) at a time, so a file may be larger than
memory. Nothing is skipped: a row that cannot be read stops the stream with its line number.

Which column is the source and which are references:

* TSV and CSV without a header: the first column is the source, all others are references.
* A table with a header, JSON objects, Parquet and datasets: by name, see `SOURCE_NAMES` and
  `REFERENCE_NAMES`; `reference1`, `reference_2`, ... are references of the same source.
* A JSON array: the first text is the source, the others are references.

A TSV is read without CSV quoting, since tweets contain stray quotes, unless it was clearly written
with it (see `_is_quoted`).
"""

import csv
import gzip
import io
import itertools
import json
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import BadInput, MissingExtra
from ..files import disk_errors, whole_file

SOURCE_NAMES = (
    *("source", "src", "input", "original", "informal"),
    *("sentence1", "question1", "text1", "sentence", "text"),
)
REFERENCE_NAMES = (
    *("references", "reference", "refs", "ref", "targets", "target", "tgt", "output", "formal"),
    *("paraphrases", "paraphrase", "sentence2", "question2", "text2"),
)

Row = Mapping[str, Any] | Sequence[Any] | str
"""What one record of a file is: fields by name, cells by position, or a bare text."""


@dataclass(frozen=True)
class Example:
    """One source with its references, in the order of the file."""

    source: str
    references: tuple[str, ...]


def read_examples(path: str | Path) -> Iterator[Example]:
    """Stream the examples of a corpus file.

    Args:
        path: a TSV, CSV, JSONL or Parquet file, plain or `.gz`; `hf:NAME[:CONFIG[:SPLIT]]` for a
            Hugging Face dataset (split `train` unless given); `-` for a TSV on standard input.

    Raises:
        BadInput: for a missing or empty file, invalid UTF-8, or a row without source or references.
    """
    for where, row in _rows(path):
        yield Example(_source(row, where), _references(row, where))


def read_sources(path: str | Path) -> Iterator[str]:
    """Stream the sources of a plain text (one per line) or of anything that `read_examples` reads.

    References need not be there. `-` is plain text on standard input.

    Raises:
        BadInput: as `read_examples`, and for an empty source.
    """
    plain = _kind(path) == "text"
    rows: Iterator[tuple[str, Row]] = _located(path, _lines(path)) if plain else _rows(path)
    for where, row in rows:
        source = _source(row, where)
        if not source.strip():
            raise BadInput(f"{where}: the source is empty; remove the line or write one")
        yield source


def read_records(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Stream the JSON values of a JSONL file, each with its place (`FILE, line N`) for messages."""
    for where, line in _located(path, _lines(path)):
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadInput(
                f"{where}: not valid JSON ({error.msg}); write one JSON value per line"
            ) from None
        if "\\u" in line and _has_half_a_pair(value):
            raise BadInput(
                f"{where}: an escape of half a surrogate pair, which is no character; "
                "write the text as UTF-8"
            )
        yield where, value


def read_lines(path: str | Path) -> Iterator[str]:
    """Stream the lines of a UTF-8 text file, plain or `.gz`, without their line ends."""
    return _lines(path)


def is_plain_text(path: str | Path) -> bool:
    """Whether a file has no columns: none of the known endings, no tab in its first line.

    Standard input, which can be read only once, has columns.
    """
    return str(path) != "-" and _kind(path) == "text" and "\t" not in next(_lines(path), "")


def write_examples(path: str | Path, examples: Iterable[Example]) -> None:
    """Write examples as JSONL, the one format that holds any text."""
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(map(as_line, examples))


def as_line(example: Example) -> str:
    """An example as one line of JSONL."""
    row = {"source": example.source, "references": example.references}
    return json.dumps(row, ensure_ascii=False) + "\n"


# Columns -----------------------------------------------------------------------------------------


def _source(row: Row, where: str) -> str:
    if isinstance(row, str):
        return row
    if isinstance(row, Mapping):
        name = next((name for name in SOURCE_NAMES if name in row), None)
        if name is None:
            raise BadInput(f"{where}: no source among {_names(row)}; name it 'source'")
        return _text(row[name], where, name)
    if not row:
        raise BadInput(f"{where}: an empty list; write the source and its references")
    return _text(row[0], where, "the first item")


def _references(row: Row, where: str) -> tuple[str, ...]:
    if isinstance(row, str):
        raise BadInput(f"{where}: a source without references; write an object or a list")
    if isinstance(row, Mapping):
        fields = [(name, row[name]) for name in row if _is_reference(name)]
        if not fields:
            raise BadInput(
                f"{where}: no reference among {_names(row)}; name it 'reference' or 'references'"
            )
    else:
        fields = [(f"item {number}", cell) for number, cell in enumerate(row[1:], start=2)]
    texts: list[str] = []
    for name, value in fields:
        if isinstance(value, (list, tuple)):
            texts.extend(_text(item, where, name) for item in value)
        elif value is not None:
            texts.append(_text(value, where, name))
    if not texts:
        raise BadInput(f"{where}: a source without references; give at least one")
    # Tables pad rows that have fewer references than the widest row with empty cells.
    return tuple(texts[:1] + [text for text in texts[1:] if text])


def _is_reference(name: str) -> bool:
    return name in REFERENCE_NAMES or re.sub(r"[ _-]?\d+$", "", name) in REFERENCE_NAMES


def _text(value: Any, where: str, name: str) -> str:
    if not isinstance(value, str):
        raise BadInput(
            f"{where}: {name} holds {json.dumps(value, default=str)[:40]} where a text is expected"
        )
    return value


def _has_half_a_pair(value: Any) -> bool:
    """Whether a text of a JSON value can be escaped but not encoded: a lone half of a pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _names(row: Mapping[str, Any]) -> str:
    return ", ".join(repr(name) for name in row) or "no fields"


# Formats -----------------------------------------------------------------------------------------


def _kind(path: str | Path) -> str:
    if str(path).startswith("hf:"):
        return "hf"
    suffix = Path(str(path).removesuffix(".gz")).suffix.lower()
    known = {
        ".jsonl": "jsonl",
        ".ndjson": "jsonl",
        ".parquet": "parquet",
        ".csv": "csv",
        ".tsv": "tsv",
    }
    return known.get(suffix, "text")


def _rows(path: str | Path) -> Iterator[tuple[str, Row]]:
    """Every record with its place for messages; names of fields in lower case."""
    kind = _kind(path)
    if kind in ("csv", "tsv", "text"):
        yield from _table(path, "," if kind == "csv" else "\t")
        return
    if kind == "jsonl":
        records = read_records(path)
    else:
        rows = _dataset(str(path)) if kind == "hf" else _parquet(Path(path))
        records = _located(path, rows, "row")
    for where, row in records:
        if isinstance(row, dict):
            yield where, {name.lower(): value for name, value in row.items()}
        elif isinstance(row, (list, str)):
            yield where, row
        else:
            raise BadInput(f"{where}: {row!r} is no example; write an object or a list of texts")


def _located(
    path: str | Path, rows: Iterable[Any], unit: str = "line"
) -> Iterator[tuple[str, Any]]:
    number = 0
    for number, row in enumerate(rows, start=1):
        yield f"{_shown(path)}, {unit} {number}", row
    if number == 0:
        raise BadInput(f"{_shown(path)} is empty; give a file with one {unit} per example")


def _shown(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


@contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO | io.BufferedIOBase]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    with disk_errors(path), Path(path).open("rb") as file:
        if not str(path).endswith(".gz"):
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file) as stream:
                yield stream
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BadInput(
                f"{path}: not a whole gzip file ({error}); fetch or compress it again"
            ) from None


def _lines(path: str | Path) -> Iterator[str]:
    # Split at line feeds only: tweets hold other characters that `str.splitlines` splits at.
    with _opened(path) as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                where = f"{_shown(path)}, line {number}, byte {error.start + 1}"
                raise BadInput(f"{where}: not UTF-8; convert the file to UTF-8") from None
            yield line.removesuffix("\n").removesuffix("\r")


def _table(path: str | Path, delimiter: str) -> Iterator[tuple[str, Row]]:
    lines = _lines(path)
    first = list(itertools.islice(lines, 1000))
    if not first:
        raise BadInput(f"{_shown(path)} is empty; give a file with one line per example")
    everything = itertools.chain(first, lines)
    rows: Iterator[tuple[int, list[str]]]
    if delimiter == "\t" and not _is_quoted(first):
        rows = ((number, line.split("\t")) for number, line in enumerate(everything, start=1))
    else:
        rows = _csv_rows(path, everything, delimiter)
    header: list[str] | None = None
    for number, cells in rows:
        where = f"{_shown(path)}, line {number}"
        if len(cells) < 2:
            what = "tab" if delimiter == "\t" else "comma"
            raise BadInput(
                f"{where}: no {what}; write source{'<tab>' if what == 'tab' else ','}reference"
            )
        if header is None:
            names = [cell.strip().lower() for cell in cells]
            if any(name in SOURCE_NAMES for name in names) and any(map(_is_reference, names)):
                header = names
                continue
            header = []
        if header and len(cells) != len(header):
            raise BadInput(f"{where}: {len(cells)} columns where the header has {len(header)}")
        yield where, dict(zip(header, cells, strict=True)) if header else cells


def _csv_rows(
    path: str | Path, lines: Iterable[str], delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise BadInput(
                f"{_shown(path)}, line {reader.line_num}: {error}; check the quotes"
            ) from None
        yield reader.line_num, cells


def _is_quoted(lines: Sequence[str]) -> bool:
    """Whether the first lines of a TSV were written with CSV quoting.

    They were if quotes stand nowhere but around whole fields (doubled inside them), and either all
    fields have them or at least one holds a doubled quote: writers quote all or only what needs it.
    """
    text = "\n".join(lines) + "\n"
    if '"' not in text:
        return False
    field = re.compile(r'("(?:[^"]|"")*"|[^"\t\n]*)[\t\n]')
    cells, at = [], 0
    while at < len(text):
        match = field.match(text, at)
        if match is None:
            return False
        cells.append(match[1])
        at = match.end()
    quoted = [cell for cell in cells if cell.startswith('"')]
    return len(quoted) == len(cells) or any('""' in cell[1:-1] for cell in quoted)


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingExtra("pyarrow", "data") from None
    with ExitStack() as stack:
        stack.enter_context(disk_errors(path))
        whole: Any = path
        if path.suffix == ".gz":  # Parquet is read from its end, which a gzip stream cannot reach
            whole = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stack.enter_context(_opened(path)), whole)
        try:
            # As pyarrow reads unless told otherwise, all that was read stays in memory to the end.
            settings = {"buffer_size": 1 << 16, "pre_buffer": False}
            file = stack.enter_context(parquet.ParquetFile(whole, **settings))
            for batch in file.iter_batches(batch_size=1024):
                yield from batch.to_pylist()
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            reason = str(error).strip().splitlines()[0]
            raise BadInput(
                f"{path} is not a whole Parquet file ({reason}); write it again"
            ) from None
        except UnicodeDecodeError:
            raise BadInput(f"{path}: a text is not UTF-8; write the column again as text") from None


def _dataset(name: str) -> Iterator[dict[str, Any]]:
    try:
        import datasets
    except ImportError:
        raise MissingExtra("datasets", "data") from None
    parts = name.removeprefix("hf:").split(":")
    if len(parts) > 3 or not parts[0]:
        raise BadInput(
            f"{name!r} is no dataset; write hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT"
        )
    config = parts[1] if len(parts) > 1 and parts[1] else None
    split = parts[2] if len(parts) > 2 else "train"
    try:
        yield from datasets.load_dataset(parts[0], config, split=split, streaming=True)
    except (OSError, ValueError) as error:  # an unknown name, config or split, or no network
        raise BadInput(f"{name}: {str(error).splitlines()[0]}") from None
