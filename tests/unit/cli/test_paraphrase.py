"""`polyphrase paraphrase` as a person and as a pipe see it."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from polyphrase.api import load
from polyphrase.cli.remarks import brief
from polyphrase.text import normal_form

Command = Callable[..., int]
Captured = pytest.CaptureFixture[str]
TEXT = "how do i learn music ?"
LINES = "how do i learn music ?\nhow do you see fish ?\n"


@pytest.fixture
def run(command: Command, tiny_model: Path) -> Command:
    return lambda *arguments: command("paraphrase", "--model", tiny_model, *arguments)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], None]:
    """What stands on standard input."""

    def give(text: str | bytes) -> None:
        raw = io.BytesIO(text if isinstance(text, bytes) else text.encode())
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=raw, isatty=lambda: False))

    return give


def test_a_text_in_lines_out(run: Command, capsys: Captured) -> None:
    assert run(TEXT, "-n", 2) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert len(lines) == 2
    assert len({normal_form(line) for line in (*lines, TEXT, "")}) == 4
    assert err == ""
    assert run(TEXT, "-n", 2) == 0
    assert capsys.readouterr().out == out


def test_json_says_what_is_known(run: Command, capsys: Captured, tiny_model: Path) -> None:
    assert run(TEXT, "-n", 2, "--json", "--raw", "--seed", 3, "--spread", 4) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found = json.loads(out)
    assert list(found) == ["source", "candidates", "model", "seed", "spread"]
    assert (found["source"], found["seed"], found["spread"]) == (TEXT, 3, 4.0)
    assert found["model"] == str(tiny_model)
    assert len(found["candidates"]) == 2
    for candidate in found["candidates"]:
        types = {name: type(value) for name, value in candidate.items()}
        assert types == {
            "text": str, "sample": int, "log_probability": float, "tokens": int, "finished": bool,
            "rank": int,
        }  # fmt: skip
        assert candidate["log_probability"] < 0
    assert [candidate["sample"] for candidate in found["candidates"]] == [0, 1]


def test_json_gives_the_spread_that_was_used(run: Command, capsys: Captured) -> None:
    assert run(TEXT, "-n", 1, "--json") == 0
    assert json.loads(capsys.readouterr().out)["spread"] == 2.0  # the model's


def test_standard_input_gives_blocks_that_name_their_text(
    run: Command, given: Callable[[str], None], capsys: Captured
) -> None:
    given(LINES)
    assert run("-n", 2, "--raw") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("\t")] == LINES.splitlines()
    assert [line.startswith("\t") for line in lines] == [False, True, True] * 2
    given(LINES)
    assert run("-n", 2, "--raw", "--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["source"] for item in found] == LINES.splitlines()
    texts = [candidate["text"] for item in found for candidate in item["candidates"]]
    assert [line.removeprefix("\t") for line in lines if line.startswith("\t")] == texts


def test_raw_gives_all_samples(run: Command, capsys: Captured, tiny_model: Path) -> None:
    assert run(TEXT, "-n", 12, "--raw") == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 12
    assert err == ""
    expected = load(tiny_model, "cpu").generate([TEXT], n=12)[0]
    assert out.splitlines() == [" ".join(text.split()) for text in expected]


@pytest.fixture(scope="module")
def limits(tiny_model: Path) -> tuple[int, int]:
    """How many different rewrites there are of each of the two texts, looking for many."""
    found = load(tiny_model, "cpu").generate(LINES.splitlines(), n=40, distinct=True)
    return len(found[0]), len(found[1])


def test_too_few_rewrites_are_told_with_the_text(
    run: Command, capsys: Captured, limits: tuple[int, int]
) -> None:
    assert 2 < limits[0] < 40
    assert run(TEXT, "-n", 40) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == limits[0]
    assert err == (
        f"polyphrase: only {limits[0]} different rewrites instead of 40 of {TEXT!r}; "
        "raise --spread for more\n"
    )


def test_no_rewrite_at_all_prints_nothing_but_the_reason(
    command: Command, tiny_backbone: Path, capsys: Captured
) -> None:
    """A deterministic model whose sentences never end."""
    assert command("paraphrase", TEXT, "--model", tiny_backbone, "-n", 2) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"polyphrase: no different rewrite of {TEXT!r}; draw words for more (--search sample)\n"
    )


def test_many_texts_with_too_few_rewrites_are_counted(
    run: Command, given: Callable[[str], None], capsys: Captured
) -> None:
    given("".join(f"how do {who} learn music ?\n" for who in ("i", "you", "we", "they", "people")))
    assert run("-n", 100, "--max-length", 3) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 4
    assert all(" of 'how do " in line for line in told[:3])
    assert told[3] == (
        "polyphrase: 5 of 5 texts have fewer than 100 that differ; raise --spread for more"
    )


def test_a_long_text_is_cut_and_counted_or_refused(
    run: Command, given: Callable[[str], None], capsys: Captured, tiny_model: Path
) -> None:
    text = "how do " * 60
    given(f"{text}\n{LINES}{text}\n")
    assert run("-n", 1, "--raw") == 0
    assert capsys.readouterr().err == (
        f"polyphrase: 2 of 4 texts were cut to the 64 tokens that {tiny_model} reads; "
        "--strict refuses such a text\n"
    )
    assert run(text, "-n", 1, "--raw", "--json") == 0
    assert json.loads(capsys.readouterr().out)["truncated"] is True
    assert run(text, "-n", 1, "--raw", "--strict") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "longer than the 64 tokens" in err
    assert "leave strict out to cut it ('how do how do " in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("",), "the text is empty: give a sentence to rewrite"),
        (("caf\udce9",), "the text is not UTF-8: convert it"),
        ((TEXT, "-n", 0), "n is 0: ask for 1 rewrite or more"),
        ((TEXT, "--spread", -1), "spread is -1: give 0 (the posterior mean) or more"),
        ((TEXT, "--spread", "nan"), "spread is nan: give 0"),
        ((TEXT, "--search", "foo"), "search.method: 'foo' is not one of 'beam', 'greedy'"),
        ((TEXT, "--beams", 0), "beams is 0: give 1 or more"),
        ((TEXT, "--top-p", 2), "top_p is 2.0: give a number above 0, at most 1"),
        ((TEXT, "-n", 4, "--spread", 0, "--beams", 3), "4 outputs of one deterministic beam"),
        ((TEXT, "--model", "no/such/folder"), "'no/such/folder': no such folder; give a model"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Command, capsys: Captured, arguments: tuple[object, ...], sentence: str
) -> None:
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"polyphrase: {sentence}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "standard input is empty; give a file with one line per example"),
        ("a\n\nb\n", "standard input, line 2: the source is empty; remove the line or write one"),
        (b"tea\ncaf\xe9\n", "standard input, line 2, byte 4: not UTF-8"),
    ],
)
def test_bad_standard_input_is_one_sentence(
    run: Command,
    given: Callable[[str | bytes], None],
    capsys: Captured,
    content: str | bytes,
    sentence: str,
) -> None:
    given(content)
    assert run("-n", 1) == 2
    assert capsys.readouterr().err.startswith(f"polyphrase: {sentence}")


def test_a_deterministic_model_has_no_spread(
    command: Command, tiny_backbone: Path, capsys: Captured
) -> None:
    assert command("paraphrase", TEXT, "--model", tiny_backbone, "--spread", 3) == 2
    assert "has no latent to spread: leave the spread out" in capsys.readouterr().err


def test_an_output_that_ends_early_or_is_full(tiny_model: Path) -> None:
    """The reader of a pipe has gone; the disk behind standard output is full."""
    flags = f"paraphrase '{TEXT}' --raw --model {tiny_model}"
    call = f"{sys.executable} -c 'from polyphrase.cli.main import main; main()'"
    script = f"({call} {flags} -n 9; echo $? >&2) | true; {call} {flags} -n 1 >/dev/full"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "1\npolyphrase: no space left on the disk that holds standard output: "
        "free some and run again\n"
    )


def test_a_text_is_named_briefly() -> None:
    assert brief("a\n b") == "'a b'"
    assert len(brief("many words " * 20)) <= 50
    assert brief("many words " * 20).endswith(" ...'")


def test_a_person_is_answered_line_by_line(
    run: Command, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    answers: list[str] = []

    class Terminal:
        def isatty(self) -> bool:
            return True

        def __iter__(self) -> Iterator[str]:
            for line in ("how do i learn music ?\n", "\n", "what ?\n"):
                yield line
                answers.append(capsys.readouterr().out)

    monkeypatch.setattr(sys, "stdin", Terminal())
    assert run("-n", 2, "--raw") == 0
    assert [answer.partition("\n")[0] for answer in answers] == [
        "how do i learn music ?",
        "",
        "what ?",
    ]
