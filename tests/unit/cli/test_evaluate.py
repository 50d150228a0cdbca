"""`polyphrase evaluate` as a person sees it."""

import json
import sys
from pathlib import Path

import pytest

from polyphrase.cli.main import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["polyphrase", "evaluate", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two systems with ten outputs for forty sources: good ones alike, poor ones different."""
    good: list[object] = []
    poor: list[object] = []
    pairs = []
    for k in range(40):
        source = f"the source number {k} says a thing"
        pairs.append(f"{source}\tsource {k} says it\n")
        same = [f"source {k} says it v{j % 2}" for j in range(10)]
        other = [f"{j} words of {k} that are {j * k}" for j in range(10)]
        for lines, texts, spread in ((good, same, 1.0), (poor, other, 9.0)):
            candidates = [{"text": text} for text in texts]
            lines.append(
                {"source": source, "candidates": candidates, "model": "gp", "spread": spread}
            )
    for name, lines in (("good", good), ("poor", poor)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "pairs.tsv").write_text("".join(pairs))
    (tmp_path / "one.txt").write_text("".join(f"source {k} says\n" for k in range(40)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


BOTH = ("--predictions", "good.jsonl", "poor.jsonl", "--references", "pairs.tsv")


def test_the_table_marks_what_differs(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *BOTH) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].split() == ["40", "rows", "good", "poor", "copy"]
    rows = {line.split("  ")[0].strip(): line for line in lines[1:22]}
    assert rows["BLEU ↑"].count("*") == 2
    assert rows["self-BLEU ↓"].count("*") == 1
    assert rows["self-BLEU ↓"].rstrip().endswith("-")
    assert "* differs from good with p < 0.05" in out
    assert "gp: hypervolume 0." in out
    assert "bleu|order:2|smooth:none|tok:whitespace|case:mixed|refs:1|quality:first|boot:" in out
    table = lines[: lines.index("")]
    assert all(len(line) <= 80 for line in table)


def test_many_systems_make_several_tables(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for k in range(4):
        (files / f"copy{k}.jsonl").write_text((files / "poor.jsonl").read_text())
    more = [f"copy{k}.jsonl" for k in range(4)]
    assert run(monkeypatch, *BOTH, *more, "--metrics", "bleu,unique") == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("40 rows")]
    assert len(heads) == 2
    assert all(head.split()[2] == "good" and len(head) <= 80 for head in heads)


def test_json(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(monkeypatch, *BOTH, "--metrics", "bleu, self-bleu", "--protocol", "code", "--json") == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["protocol"]["draw"] == "first"
    assert [one["name"] for one in found["systems"]] == ["good", "poor", "copy"]
    assert found["systems"][0]["scores"]["bleu"]["signature"].startswith("bleu|order:4|")
    assert {one["metric"] for one in found["differences"]} == {"bleu", "self-bleu"}
    assert all(0 < one["p"] <= 1 for one in found["differences"])


def test_settings_stand_in_the_signature(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--order", 3, "--tokenizer", "13a", "--lowercase", "--seed", 1, "--subset", 3)
    assert run(monkeypatch, *BOTH, "--metrics", "self-bleu", *flags) == 0
    expected = "self-bleu|order:3|smooth:none|tok:13a|case:lower|samples:3of10|draw:random@1|"
    assert expected in capsys.readouterr().out


def test_plain_text_and_sources_apart(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "refs").write_text("".join(f"source {k} says it\n" for k in range(40)))
    (files / "src").write_text("".join(f"source {k}\n" for k in range(40)))
    plain = ("--predictions", "one.txt", "--references", "refs", "--samples", 1)
    assert run(monkeypatch, *plain) == 0
    out = capsys.readouterr().out
    assert "Note: without ibleu, copies, copies-normal, overlap: the sources are not known" in (
        " ".join(out.split())
    )
    assert "self-BLEU" not in out
    assert run(monkeypatch, *plain, "--sources", "src", "--metrics", "ibleu") == 0
    assert "copy" in capsys.readouterr().out


def test_undefined_scores(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "short.jsonl").write_text((json.dumps(["a b"] * 10) + "\n") * 40)
    flags = ("--predictions", "short.jsonl", "--references", "pairs.tsv", "--metrics", "div-4,bleu")
    assert run(monkeypatch, *flags) == 0
    out = capsys.readouterr().out
    assert "short: 40 rows do not count for div-4." in out
    assert run(monkeypatch, *flags, "--json") == 0
    assert json.loads(capsys.readouterr().out)["systems"][0]["scores"]["div-4"]["value"] is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--metrics", "blue"), "no metric is called 'blue'; known are bleu"),
        (("--protocol", "x"), "no protocol is called 'x'"),
        (("--tokenizer", "x"), "no tokenizer is called 'x'"),
        (("--samples", 11), "good.jsonl, source 1 ('the source number 0"),
        (("--wordnet", "."), "holds no data.noun"),
        (("none.jsonl",), "none.jsonl: No such file"),
        (("one.txt",), "one.txt, source 1: 1 of the 10 outputs that the protocol needs"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[object, ...],
    message: str,
) -> None:
    assert run(monkeypatch, *BOTH, *flags) == 2
    error = capsys.readouterr().err
    assert error.startswith("polyphrase: ")
    assert error.count("\n") == 1
    assert message in error
