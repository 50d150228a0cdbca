"""One stream of examples out of every format, and one sentence for every file that is no good."""

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyphrase.data.readers import Example, read_examples, read_sources, write_examples
from polyphrase.errors import BadInput

ROWS = [Example("a b", ("c", "d e")), Example("f", ("g", "h"))]
TWEET = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\0"), min_size=1)


def put(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def as_csv(rows: list[Example], delimiter: str, quoting: int, header: bool) -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator="\n")  # type: ignore[arg-type]
    if header:
        writer.writerow(["source", "reference1", "reference2"])
    writer.writerows([row.source, *row.references] for row in rows)
    return out.getvalue()


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
def test_tables(tmp_path: Path, suffix: str, quoting: int, header: bool, ending: str) -> None:
    text = as_csv(ROWS, "\t" if suffix == ".tsv" else ",", quoting, header)
    path = put(tmp_path / f"x{suffix}{ending}", text)
    assert list(read_examples(path)) == ROWS
    assert list(read_sources(path)) == ["a b", "f"]


@given(rows=st.lists(st.tuples(TWEET, TWEET), min_size=1, max_size=5))
def test_a_csv_gives_back_any_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    examples = [Example(source, (reference,)) for source, reference in rows]
    text = "source,reference\n" + "".join(
        ",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows
    )
    path = put(tmp_path_factory.mktemp("csv") / "x.csv", text)
    assert list(read_examples(path)) == examples


@given(rows=st.lists(st.tuples(TWEET, TWEET), min_size=1, max_size=5))
def test_jsonl_gives_back_any_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    examples = [Example(source, (reference, source)) for source, reference in rows]
    path = tmp_path_factory.mktemp("jsonl") / "x.jsonl"
    write_examples(path, examples)
    assert list(read_examples(path)) == examples


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ('"stray\tb', ('"stray', "b")),
        ('a "b" c\td', ('a "b" c', "d")),
        ('"a" said b\tc', ('"a" said b', "c")),
        ('a\t5" nails', ("a", '5" nails')),
        ('"He said ""no"" ."\tb', ('He said "no" .', "b")),
        ('"a"\t"b"', ("a", "b")),
        ('"a"\tb', ('"a"', "b")),
    ],
)
def test_quotes_of_a_tsv_are_text_unless_it_was_written_with_quoting(
    tmp_path: Path, line: str, cells: tuple[str, str]
) -> None:
    path = put(tmp_path / "x.tsv", line + "\n")
    assert list(read_examples(path)) == [Example(cells[0], (cells[1],))]


def test_other_line_separators_are_text(tmp_path: Path) -> None:
    path = put(tmp_path / "x.tsv", "\ufeffa\u2028b\x85\tc\r\nd\te")
    assert list(read_examples(path)) == [Example("a\u2028b\x85", ("c",)), Example("d", ("e",))]


@pytest.mark.parametrize(
    "row",
    [
        {"source": "a", "references": ["b", "c"]},
        {"Text": "a", "paraphrases": ["b"], "reference_2": "c", "id": 7},
        {"sentence1": "a", "sentence2": "b", "target 2": "c", "label": 1},
        ["a", "b", "c"],
    ],
)
def test_jsonl(tmp_path: Path, row: object) -> None:
    path = put(tmp_path / "x.jsonl", json.dumps(row) + "\n")
    assert list(read_examples(path)) == [Example("a", ("b", "c"))]
    assert list(read_sources(path)) == ["a"]


def test_sources_of_predictions_need_no_references(tmp_path: Path) -> None:
    path = put(tmp_path / "x.jsonl", '{"source": "a", "candidates": [{"text": "b"}]}\n')
    assert list(read_sources(path)) == ["a"]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_parquet(tmp_path: Path, ending: str) -> None:
    table = pyarrow.table({"Source": ["a", "b"], "references": [["c"], ["d", "e"]]})
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(table, path)
    if ending:
        path = path.rename(path.with_name("x.parquet.gz"))
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert list(read_examples(path)) == [Example("a", ("c",)), Example("b", ("d", "e"))]


def test_a_dataset_by_name(tmp_path: Path) -> None:
    put(tmp_path / "train.jsonl", '{"sentence1": "a", "sentence2": "b"}\n')
    put(tmp_path / "test.jsonl", '{"sentence1": "c", "sentence2": "d"}\n')
    assert list(read_examples(f"hf:{tmp_path}")) == [Example("a", ("b",))]
    assert list(read_examples(f"hf:{tmp_path}::test")) == [Example("c", ("d",))]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, read in (("a\tb\n", read_examples), ("a\n", read_sources)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert list(read("-")) in ([Example("a", ("b",))], ["a"])


def test_reading_streams(tmp_path: Path) -> None:
    path = put(tmp_path / "x.tsv", "a\tb\n" * 2000 + "no tab\n")
    rows = read_examples(path)
    assert [next(rows) for _ in range(2000)][-1] == Example("a", ("b",))
    with pytest.raises(BadInput, match="line 2001: no tab"):
        next(rows)


def test_an_escaped_pair_is_a_character(tmp_path: Path) -> None:
    path = put(tmp_path / "x.jsonl", '["\\ud83d\\ude00 \\u00e9", "b"]\n')
    assert list(read_examples(path)) == [Example("😀 é", ("b",))]


def test_memory_does_not_grow_with_a_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    texts = [f"{number:060d}" for number in range(100_000)]
    table = pyarrow.table({"source": texts, "reference": texts})
    # One group of rows, as most writers make them of files of this size.
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False)
    size = table.nbytes
    del table
    before = pyarrow.total_allocated_bytes()
    most = max(pyarrow.total_allocated_bytes() for _ in read_examples(path)) - before
    assert 0 < most < size / 4


@pytest.mark.parametrize(
    ("start", "bad", "message"),
    [(0, 400, "is not a whole Parquet file"), (3000, 1, "x.parquet: a text is not UTF-8")],
)
def test_a_parquet_file_that_is_damaged_inside(
    tmp_path: Path, start: int, bad: int, message: str
) -> None:
    path = tmp_path / "x.parquet"
    table = pyarrow.table({"source": ["a word " * 50] * 5000, "reference": ["b"] * 5000})
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[start : start + bad] = b"\xff" * bad
    path.write_bytes(data)
    with pytest.raises(BadInput, match=message):
        list(read_examples(path))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.tsv", b"", "x.tsv is empty"),
        ("x.jsonl", b"", "x.jsonl is empty"),
        ("x.tsv", b"a\tb\nc d\n", "x.tsv, line 2: no tab"),
        ("x.tsv", b"a\tb\n\n", "x.tsv, line 2: no tab"),
        ("x.csv", b"a,b\nc\n", "x.csv, line 2: no comma"),
        ("x.csv", b'a,b\n"c"d,e\n', "x.csv, line 2: .*check the quotes"),
        ("x.tsv", b"a\tb\nc\xff\td\n", "x.tsv, line 2, byte 2: not UTF-8"),
        ("x.csv", b"a,b\n\xc3,d\n", "x.csv, line 2, byte 1: not UTF-8"),
        ("x.tsv", b"source\treference\na\tb\tc\n", "line 2: 3 columns where the header has 2"),
        ("x.jsonl", b'["a", "b"]\n{"source"\n', "x.jsonl, line 2: not valid JSON"),
        ("x.jsonl", b'{"id": 1}\n', "x.jsonl, line 1: no source among 'id'"),
        ("x.jsonl", b'{"source": "a"}\n', "x.jsonl, line 1: no reference among 'source'"),
        ("x.jsonl", b'{"source": 3, "target": "b"}\n', "source holds 3 where a text is expected"),
        ("x.jsonl", b'{"source": "a", "target": []}\n', "line 1: a source without references"),
        ("x.jsonl", b'["a", "b"]\n["\\ud83d", "b"]\n', "x.jsonl, line 2: .* half a surrogate pair"),
        ("x.jsonl", b"7\n", "x.jsonl, line 1: 7 is no example"),
        ("x.jsonl", b"[]\n", "x.jsonl, line 1: an empty list"),
        ("x.jsonl", b'"a"\n', "x.jsonl, line 1: a source without references"),
        ("x.parquet", b"not", "x.parquet is not a whole Parquet file"),
        ("x.tsv.gz", b"not", "x.tsv.gz: not a whole gzip file"),
        (
            "x.tsv.gz",
            gzip.compress(b"a\tb\n" * 99, mtime=0)[:20],
            "x.tsv.gz: not a whole gzip file",
        ),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BadInput, match=message):
        list(read_examples(path))


def test_other_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none.tsv: No such file"):
        list(read_examples(tmp_path / "none.tsv"))
    with pytest.raises(BadInput, match="line 2: the source is empty"):
        list(read_sources(put(tmp_path / "x.txt", "a\n\nb\n")))
    with pytest.raises(BadInput, match="is no dataset; write hf:NAME"):
        list(read_examples("hf:a:b:c:d"))
    with pytest.raises(BadInput, match=r"hf:.*none"):
        list(read_examples(f"hf:{tmp_path}/none"))
