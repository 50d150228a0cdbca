"""Outputs and references in anybody's format."""

import io
import json
from pathlib import Path

import pytest

from polyphrase.errors import BadInput
from polyphrase.evaluation.predictions import read_predictions, read_references


def put(path: Path, *lines: object) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def test_the_projects_own_format(tmp_path: Path) -> None:
    line = {
        "source": "a",
        "candidates": [{"text": "b", "score": -1.0}, {"text": "c"}],
        "mean": "d",
        "model": "m",
        "seed": 0,
        "spread": 2.0,
    }
    read = read_predictions(put(tmp_path / "x.jsonl", line, {**line, "source": "e"}))
    assert read.candidates == (("b", "c"), ("b", "c"))
    assert (read.sources, read.means) == (("a", "e"), ("d", "d"))
    assert (read.model, read.spread) == ("m", 2.0)


@pytest.mark.parametrize(
    "line",
    [
        ["b", "c"],
        {"candidates": ["b", "c"]},
        {"id": 7, "generated": ["b", "c"], "references": ["d"]},
    ],
)
def test_other_jsonl(tmp_path: Path, line: object) -> None:
    read = read_predictions(put(tmp_path / "x.jsonl", line))
    assert (read.candidates, read.sources, read.means, read.model) == (
        (("b", "c"),),
        None,
        None,
        None,
    )


def test_plain_text(tmp_path: Path) -> None:
    assert read_predictions(put(tmp_path / "x.txt", "b", "c d")).candidates == (("b",), ("c d",))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (([],), "line 1: 'candidates' holds no outputs"),
        ((["a"], ["b", " "]), "line 2: output 2 is empty"),
        ((["a"], ["b", 3]), "line 2: output 2 is no text"),
        (({"candidates": [{"words": "a"}]},), "line 1: output 1 is no text"),
        (({"candidates": "a"},), "line 1: 'candidates' holds no outputs"),
        (({"x": ["a"], "y": ["b"]},), "line 1: lists found: 'x', 'y'; name the one of outputs"),
        (({"source": "a"},), "line 1: lists found: none"),
        (({"source": "", "candidates": ["a"]},), "line 1: 'source' is empty"),
        (({"mean": "a", "candidates": ["a"]}, ["b"]), "line 2: no 'mean', which line 1 has"),
        ((["b"], {"source": "a", "candidates": ["a"]}), "line 1: no 'source', which line 2 has"),
        (("3",), "line 1: '3' is neither an object nor a list"),
        (("{",), "line 1: not valid JSON"),
        ((), "x.jsonl is empty"),
    ],
)
def test_bad_predictions(tmp_path: Path, lines: tuple[object, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_predictions(put(tmp_path / "x.jsonl", *lines))


def test_bad_plain_text(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="line 2: the output is empty"):
        read_predictions(put(tmp_path / "x.txt", "a", "", "b"))
    with pytest.raises(BadInput, match=r"x.txt is empty"):
        read_predictions(put(tmp_path / "x.txt"))
    (tmp_path / "x.txt").write_bytes(b"a\nb\xff\n")
    with pytest.raises(BadInput, match="line 2, byte 2: not UTF-8"):
        read_predictions(tmp_path / "x.txt")


def test_references_with_their_sources(tmp_path: Path) -> None:
    for name in ("x.tsv", "pairs"):
        read = read_references([put(tmp_path / name, "a\tb", "a\tc", "d\te")])
        assert (read.sources, read.references) == (("a", "a", "d"), (("b",), ("c",), ("e",)))
    grouped = read.grouped()
    assert (grouped.sources, grouped.references) == (("a", "d"), (("b", "c"), ("e",)))


def test_references_alone(tmp_path: Path) -> None:
    files = [put(tmp_path / "ref0", "a", "b"), put(tmp_path / "ref1", "c", "d")]
    read = read_references(files)
    assert (read.sources, read.references) == (None, (("a", "c"), ("b", "d")))
    assert read_references(files, put(tmp_path / "src", "s", "t")).sources == ("s", "t")
    with pytest.raises(BadInput, match="tells no sources to group by"):
        read.grouped()
    with pytest.raises(BadInput, match=r"ref2 has 1 lines where .*ref0 has 2"):
        read_references([files[0], put(tmp_path / "ref2", "x")])
    with pytest.raises(BadInput, match="src has 3 sources for 2 references"):
        read_references(files, put(tmp_path / "src", "s", "t", "u"))


def test_empty_references_fill_up_but_every_row_has_one(tmp_path: Path) -> None:
    files = [put(tmp_path / "ref0", "a", ""), put(tmp_path / "ref1", " ", "d")]
    assert read_references(files).references == (("a",), ("d",))
    with pytest.raises(BadInput, match=r"ref0, row 2: the reference is empty"):
        read_references(files[:1])
    with pytest.raises(BadInput, match=r"x.tsv, row 1: the reference is empty"):
        read_references([put(tmp_path / "x.tsv", "a\t", "b\tc")])


def test_references_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\nc\td\n")))
    read = read_references(["-"])
    assert (read.sources, read.references) == (("a", "c"), (("b",), ("d",)))
