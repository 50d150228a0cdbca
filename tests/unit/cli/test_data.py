"""`polyphrase data` as a person sees it."""

import io
import json
import sys
from pathlib import Path

import pytest

from polyphrase.cli.main import main
from polyphrase.data.readers import read_examples

TRAIN = "A dog ran home .\tThe dog went home .\nA dog ran home .\tA hound ran home .\nx y\tx y\n"
TEST = "A dog ran home .\tThe dog went home .\na dog ran home!\tNobody knows\nnew words\tz\n"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["polyphrase", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.tsv").write_text(TRAIN)
    (tmp_path / "test.tsv").write_text(TEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_audit_prints_what_is_shared(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "data", "audit", "train.tsv", "test.tsv") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "rows train test",
        "all 3 3",
        "reference = source 1 0",
        "also in test in train",
        "pairs 1 (33.3%)",
        "sources 1 (33.3%)",
        "or near 2 (66.7%)",
    ):
        assert line in lines
    assert any(line.startswith("BLEU-2, rows grouped by source 0.") for line in lines)


def test_audit_as_json_and_its_exit_code(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("data", "audit", "train.tsv", "test.tsv", "--json", "--fail-on")
    assert run(monkeypatch, *arguments, "leak") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["leaks"][0] == {
        "earlier": "train",
        "later": "test",
        "pairs": 1,
        "sources": 1,
        "references": 1,
        "near_pairs": 1,
        "near_sources": 2,
    }
    assert found["copying"]["test"]["BLEU-2, each row"]["signature"].startswith("bleu|order:2|")
    (corpus / "test.tsv").write_text("a dog ran home!\tNobody knows\n")
    assert run(monkeypatch, *arguments, "leak") == 0
    assert run(monkeypatch, *arguments, "near") == 1
    (corpus / "test.tsv").write_text("other words\tNobody knows\n")
    assert run(monkeypatch, *arguments, "near") == 0


def test_audit_of_standard_input_and_of_a_part_too_large_to_be_copied_whole(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "data", "audit", "test.tsv") == 0
    whole = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEST.encode())))
    assert run(monkeypatch, "data", "audit", "test=-") == 0
    assert capsys.readouterr().out == whole
    monkeypatch.setattr("polyphrase.cli.data.COPIED_ROWS", 2)
    assert run(monkeypatch, "data", "audit", "train.tsv", "test.tsv") == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "of test the first 2 rows are scored"
    (corpus / "test.tsv").write_text("".join(TEST.splitlines(keepends=True)[:2]))
    assert run(monkeypatch, "data", "audit", "train.tsv", "test.tsv") == 0
    scores = [line for line in out.splitlines() if line.startswith("BLEU")]
    assert [line for line in capsys.readouterr().out.splitlines() if line in scores] == scores


def test_parts_by_name(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (corpus / "x.tsv").write_text(TEST)
    (corpus / "old").mkdir()
    (corpus / "old" / "test.tsv").write_text(TEST)
    assert run(monkeypatch, "data", "audit", "train.tsv", "test=x.tsv") == 0
    assert "test in train" in capsys.readouterr().out
    assert run(monkeypatch, "data", "audit", "test.tsv", "old/test.tsv") == 2
    assert "test.tsv and old/test.tsv are both test; name them as PART=FILE" in (
        capsys.readouterr().err
    )


def test_split_shares_nothing_and_is_made_again_from_its_file(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"source {n // 3}\treference {n}\n" for n in range(300))
    (corpus / "all.tsv").write_text(rows)
    assert run(monkeypatch, "data", "split", "all.tsv", "--out", "split.json") == 0
    assert "split.json: " in capsys.readouterr().out
    assert run(monkeypatch, "data", "split", "all.tsv", "--apply", "split.json", "--to", "a") == 0
    assert run(monkeypatch, "data", "split", "all.tsv", "--to", "b") == 0
    parts = {
        part: list(read_examples(f"a/{part}.jsonl")) for part in ("train", "validation", "test")
    }
    assert parts == {part: list(read_examples(f"b/{part}.jsonl")) for part in parts}
    assert sum(map(len, parts.values())) == 300
    capsys.readouterr()
    files = [f"a/{part}.jsonl" for part in parts]
    assert run(monkeypatch, "data", "audit", *files, "--fail-on", "leak") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("split", "train.tsv"), "nothing to write: give --out"),
        (("split", "train.tsv", "--by", "row", "--out", "x"), "--by row: give source or text"),
        (("split", "-", "--to", "x"), "standard input can be read only once"),
        (("split", "train.tsv", "--apply", "train.tsv", "--to", "x"), "is no split file"),
        (("audit", "none.tsv"), "none.tsv: No such file"),
        (("audit", "train.tsv", "--fail-on", "x"), "--fail-on x: give leak or near"),
        (("get", "gyafc-fr"), "gyafc-fr is under a licence: ask for"),
        (("get", "other"), "no corpus is called 'other'"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    assert run(monkeypatch, "data", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("polyphrase: ")
    assert error.count("\n") == 1
    assert message in error
    assert not (corpus / "x").exists()


def test_get_says_what_it_brought(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("train", "tune", "test"):
        below = corpus / "mine" / "Entertainment_Music" / folder
        below.mkdir(parents=True)
        for name in ("informal", "formal", *(f"formal.ref{k}" for k in range(4))):
            (below / name).write_text(f"{name}\n")
    assert run(monkeypatch, "data", "get", "gyafc-em", "--from", "mine") == 0
    assert capsys.readouterr().out.startswith("data/gyafc-em: GYAFC Entertainment & Music")
    (row,) = read_examples("data/gyafc-em/test.jsonl")
    assert len(row.references) == 4
