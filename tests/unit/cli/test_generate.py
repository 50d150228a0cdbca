"""`polyphrase generate`: a file in, a file out, and nothing lost in between."""

import json
import os
import pty
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from polyphrase.api import load

Command = Callable[..., int]
Captured = pytest.CaptureFixture[str]
SEARCH = ("-n", 300, "--search", "greedy", "--max-length", 12)
"""So much for each text that there are 16 of them to a window."""


@pytest.fixture
def run(command: Command, tiny_model: Path) -> Command:
    return lambda *flags: command("generate", "--model", tiny_model, *flags)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Five different texts in a plain file."""
    path = tmp_path / "texts.txt"
    subjects = ("i", "you", "we", "they", "people")
    path.write_text("".join(f"how do {who} learn music ?\n" for who in subjects))
    return path


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_object_per_text(run: Command, texts: Path, tmp_path: Path, tiny_model: Path) -> None:
    out = tmp_path / "deep" / "out.jsonl"
    assert run("--input", texts, "--output", out, "-n", 3, "--mean", "--seed", 7) == 0
    found = records(out)
    assert [item["source"] for item in found] == texts.read_text().splitlines()
    for item in found:
        assert list(item) == ["source", "candidates", "model", "seed", "spread", "mean"]
        assert (item["model"], item["seed"], item["spread"]) == (str(tiny_model), 7, 2.0)
    rewriter = load(tiny_model, "cpu")
    sources = texts.read_text().splitlines()
    said = [[candidate["text"] for candidate in item["candidates"]] for item in found]  # type: ignore[attr-defined]
    assert rewriter.window(300, rewriter.search(method="greedy", max_length=12)) < 20
    assert said == rewriter.generate(sources, n=3, seed=7)
    assert [[item["mean"]] for item in found] == rewriter.generate(sources, n=1, spread=0.0)


def test_references_of_a_corpus_are_left_out(run: Command, toy: Path, tmp_path: Path) -> None:
    assert run("--input", toy / "val.tsv", "--output", tmp_path / "out.jsonl", "-n", 1) == 0
    expected = [line.split("\t")[0] for line in (toy / "val.tsv").read_text().splitlines()]
    assert [item["source"] for item in records(tmp_path / "out.jsonl")] == expected


def test_a_run_that_is_killed_continues_to_the_same_bytes(
    run: Command, tmp_path: Path, tiny_model: Path, capsys: Captured
) -> None:
    """Killed for real while it works, its last line cut short besides."""
    source = tmp_path / "texts.txt"
    source.write_text("".join(f"how do {k} people learn music ?\n" for k in range(40)))
    flags = ("--mean", *SEARCH)
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    assert run("--input", source, "--output", whole, *flags) == 0
    assert whole.read_bytes().count(b"\n") == 40

    arguments = ["generate", "--model", tiny_model, "--input", source, "--output", cut, *flags]
    call = [sys.executable, "-m", "polyphrase", *map(str, arguments)]
    with subprocess.Popen(call, stderr=subprocess.DEVNULL) as process:
        while not (cut.exists() and cut.read_bytes().count(b"\n") > 1):
            assert process.poll() is None, "it ended before a text was written"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    left = cut.read_bytes()
    assert 0 < left.count(b"\n") < 40, "killed in the middle"
    assert left == whole.read_bytes()[: len(left)]

    for end in (len(left), left.rindex(b"\n") - 20):  # as it was; in the middle of a line
        cut.write_bytes(left[:end])
        done = left[:end].count(b"\n")
        capsys.readouterr()
        assert run("--input", source, "--output", cut, *flags) == 0
        assert f"cut.jsonl: continuing after {done} text" in capsys.readouterr().err
        assert cut.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("done", [1, 15, 16, 17, 33])
def test_it_continues_from_any_line(
    run: Command, tmp_path: Path, done: int, whole_output: tuple[Path, Path]
) -> None:
    source, whole = whole_output
    out = tmp_path / "out.jsonl"
    lines = whole.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:done]) + lines[done][:9])
    beside = ".jsonl.settings.json"
    out.with_suffix(beside).write_bytes(whole.with_suffix(beside).read_bytes())
    assert run("--input", source, "--output", out, "--mean", *SEARCH) == 0
    assert out.read_bytes() == whole.read_bytes()


@pytest.fixture(scope="module")
def whole_output(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> tuple[Path, Path]:
    """An input of 36 texts of many lengths, and the output of a run that was not interrupted."""
    from typer.testing import CliRunner

    from polyphrase.cli.main import app

    folder = tmp_path_factory.mktemp("whole")
    source, out = folder / "texts.txt", folder / "out.jsonl"
    source.write_text(
        "".join("how do i learn " + "music " * (k % 7 + 1) + "?\n" for k in range(36))
    )
    arguments = ["generate", "--model", tiny_model, "--input", source, "--output", out]
    done = CliRunner().invoke(app, [str(word) for word in (*arguments, "--mean", *SEARCH)])
    assert done.exit_code == 0
    return source, out


def test_a_finished_output_stays(run: Command, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert run("--input", texts, "--output", out, "-n", 1) == 0
    before = out.read_bytes()
    assert run("--input", texts, "--output", out, "-n", 1) == 0
    assert out.read_bytes() == before
    with texts.open("a") as file:
        file.write("how do i see tea ?\n")
    assert run("--input", texts, "--output", out, "-n", 1) == 0
    assert out.read_bytes().startswith(before)
    assert len(records(out)) == 6


@pytest.mark.parametrize(
    "flags",
    [
        ("-n", 2), ("--seed", 1), ("--spread", 1), ("--distinct",), ("--mean",), ("--beams", 4),
        ("--search", "greedy"),
    ],
)  # fmt: skip
def test_other_settings_never_join_an_output(
    run: Command, texts: Path, tmp_path: Path, capsys: Captured, flags: tuple[object, ...]
) -> None:
    out = tmp_path / "out.jsonl"
    assert run("--input", texts, "--output", out, "-n", 1) == 0
    before = out.read_bytes() + b'{"sour'  # cut short: what is refused is not even trimmed
    out.write_bytes(before)
    assert run("--input", texts, "--output", out, "-n", 1, *flags) == 2
    assert capsys.readouterr().err.endswith(
        "out.jsonl was written with other settings: give those of out.jsonl.settings.json, "
        "or another --output\n"
    )
    assert out.read_bytes() == before


def test_what_others_wrote_is_left_alone(
    run: Command, texts: Path, tmp_path: Path, capsys: Captured
) -> None:
    for content in ("a line without an end", "a line\n", '{"source": "x"}\n'):
        notes = tmp_path / "notes.txt"
        notes.write_text(content)
        assert run("--input", texts, "--output", notes, "-n", 1) == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert notes.read_text() == content
    assert run("--input", texts, "--output", texts) == 2
    assert capsys.readouterr().err.endswith("is the input as well: give another --output\n")
    assert run("--input", texts, "--output", tmp_path) == 2
    assert "is not a file that can be continued" in capsys.readouterr().err
    assert run("--input", texts, "--output", "/dev/full") == 2
    assert "is not a file that can be continued" in capsys.readouterr().err
    assert run("--input", texts, "--output", texts / "out.jsonl", "-n", 1) == 2
    assert capsys.readouterr().err.startswith(f"polyphrase: {texts}: ")


def test_another_input_does_not_continue(
    run: Command, texts: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out.jsonl"
    assert run("--input", texts, "--output", out, "-n", 1) == 0
    before = out.read_bytes()
    lines = texts.read_text().splitlines(keepends=True)
    for content in (lines[0] + "tea\n" + "".join(lines[2:]), lines[0]):
        texts.write_text(content)
        assert run("--input", texts, "--output", out, "-n", 1) == 2
        assert "out.jsonl, line 2: holds another text than the input" in capsys.readouterr().err
        assert out.read_bytes() == before


def test_a_full_disk_leaves_whole_lines_and_continues(
    run: Command, texts: Path, tmp_path: Path, capsys: Captured
) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert run("--input", texts, "--output", whole, "-n", 4) == 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole.read_bytes()) * 3 // 5, limits[1]))
    try:
        assert run("--input", texts, "--output", out, "-n", 4) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert capsys.readouterr().err.endswith(f"polyphrase: {out}: File too large\n")
    left = out.read_bytes()
    assert left.count(b"\n") >= 2
    assert whole.read_bytes().startswith(left)
    assert run("--input", texts, "--output", out, "-n", 4) == 0
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("content", "flags", "sentence"),
    [
        ("", (), "texts.txt is empty; give a file with one line per example"),
        ("tea\n\nfish\n", (), "texts.txt, line 2: the source is empty"),
        (b"tea\nfi\xffsh\n", (), "texts.txt, line 2, byte 3: not UTF-8"),
        ("tea\n", ("-n", 0), "n is 0: ask for 1 rewrite or more"),
        ("tea\n", ("--spread", -1), "spread is -1: give 0"),
        ("tea\n", ("--model", "nowhere/at/all"), "'nowhere/at/all': no such folder"),
        ("tea\n", ("--beams", 3, "-n", 4, "--spread", 0), "4 outputs of one deterministic"),
        ("tea\n", ("--input", "missing.txt"), "missing.txt: No such file or directory; check"),
    ],
)
def test_bad_input_makes_no_file(
    run: Command, texts: Path, tmp_path: Path, capsys: Captured,
    content: str | bytes, flags: tuple[object, ...], sentence: str,
) -> None:  # fmt: skip
    texts.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert run("--input", texts, "--output", tmp_path / "out" / "out.jsonl", *flags) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_long_texts_are_counted_once_or_refused(
    run: Command, texts: Path, tmp_path: Path, capsys: Captured, tiny_model: Path
) -> None:
    with texts.open("a") as file:
        file.write("how do " * 60 + "\n")
    assert run("--input", texts, "--output", tmp_path / "out.jsonl", "-n", 1) == 0
    assert capsys.readouterr().err == (
        f"{tmp_path / 'out.jsonl'}: 6 texts\npolyphrase: 1 of 6 texts was cut to the 64 tokens "
        f"that {tiny_model} reads; --strict refuses such a text\n"
    )
    assert [item.get("truncated") for item in records(tmp_path / "out.jsonl")][-2:] == [None, True]
    assert run("--input", texts, "--output", tmp_path / "no.jsonl", "--strict", "-n", 1) == 2
    assert "longer than the 64 tokens" in capsys.readouterr().err


def test_a_bar_on_a_terminal(texts: Path, tmp_path: Path, tiny_model: Path) -> None:
    """How many of how many, which a pipe does not get."""
    above, below = pty.openpty()
    pid = os.fork()
    if pid == 0:
        os.dup2(below, 2)
        os.environ |= {"TERM": "xterm", "COLUMNS": "80"}
        arguments = ["--input", texts, "--output", tmp_path / "out.jsonl", "-n", "1"]
        call = ["-m", "polyphrase", "generate", "--model", tiny_model, *arguments]
        os.execv(sys.executable, [sys.executable, *map(str, call)])
    os.close(below)
    shown = b""
    while select.select([above], [], [], 60)[0]:
        try:
            shown += os.read(above, 4096)
        except OSError:  # the last writer has gone
            break
    os.close(above)
    assert os.waitpid(pid, 0)[1] == 0
    assert b"5/5" in shown
