"""`polyphrase generate`: a file of texts in, a file of rewrites out, resumable."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BadInput
from . import options

if TYPE_CHECKING:
    from .remarks import Remarks


@options.with_search
def generate(
    source: Annotated[
        str, typer.Option("--input", help="Texts, one per line, or any corpus file; '-' is stdin.")
    ],
    output: Annotated[Path, typer.Option("--output", help="A .jsonl file, one object per text.")],
    n: options.Number = 10,
    model: options.Model = "paraphraser",
    spread: options.Spread = None,
    seed: options.Seed = 0,
    strict: options.Strict = False,
    mean: Annotated[
        bool, typer.Option(help="Also write the posterior mean's output, as evaluation wants it.")
    ] = False,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="n rewrites that differ, as paraphrase gives them.")
    ] = False,
    *,
    search: dict[str, Any],
) -> None:
    """Rewrite every text of a file; run again to continue where it stopped."""
    options.refuse_numbers(n, spread)
    total = _count(source, output)  # a line that cannot be read is known before hours of work
    from ..data.readers import read_sources

    read = read_sources(source)
    texts: Iterator[str] = itertools.chain([next(read)], read)

    from ..api import load
    from ..settings import to_mapping
    from .remarks import Remarks

    rewriter = load(model)
    spread = rewriter.spread if spread is None else spread
    chosen = options.search_for(search, rewriter, n, spread)
    one = options.search_for(search, rewriter, 1, 0.0)
    rewriter.rewrite(
        [], n, spread, seed, chosen
    )  # what it refuses, it refuses before a file is made
    settings = {"model": rewriter.name, "seed": seed, "spread": spread, "n": n}
    settings |= {"distinct": distinct, "mean": mean, "search": to_mapping(chosen)}

    windows = rewriter.window(n, chosen), rewriter.window(1, one)
    recent: deque[str] = deque(maxlen=max(windows))
    done = _resume(output, _remembered(texts, recent), settings)
    other: Iterator[str] = iter(())
    if mean:
        texts, other = itertools.tee(texts)
    # From the start of the window that it stopped in: so the batches, and with them the last
    # digits, are those of a run that was never stopped.
    again, mean_again = done % windows[0], done % windows[1]
    rewritten = rewriter.rewrite(
        itertools.chain(_last(recent, again), texts),
        n, spread, seed, chosen, distinct=distinct, strict=strict,
    )  # fmt: skip
    means: Iterator[str | None] = itertools.repeat(None)
    if mean:
        sources = itertools.chain(_last(recent, mean_again), other)
        at_mean = rewriter.rewrite(sources, 1, 0.0, seed, one)
        means = (item.candidates[0].text for item in itertools.islice(at_mean, mean_again, None))
    items = zip(itertools.islice(rewritten, again, None), means)  # noqa: B905 # one may be endless
    remarks = Remarks(rewriter, n, spread, chosen, named=False)
    with remarks.collected():
        _write(output, items, settings, remarks, done, total)


def _count(source: str, output: Path) -> int | None:
    """How many texts there are, all of them read once; `None` for what can be read only once."""
    from ..data.readers import read_sources

    if source == "-" or source.startswith("hf:"):
        return None
    with contextlib.suppress(OSError):
        if output.samefile(source):
            raise BadInput(f"{output} is the input as well: give another --output")
    return sum(1 for _ in read_sources(source))


def _remembered(texts: Iterator[str], recent: deque[str]) -> Iterator[str]:
    for text in texts:
        recent.append(text)
        yield text


def _last(texts: deque[str], count: int) -> list[str]:
    return list(texts)[len(texts) - count :]


def _write(
    output: Path,
    items: Iterator[Any],
    settings: dict[str, Any],
    remarks: Remarks,
    done: int,
    total: int | None,
) -> None:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from ..files import disk_errors
    from .records import record

    console = Console(stderr=True)
    columns = (
        TextColumn("rewriting"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn() if total is None else TimeRemainingColumn(),
    )
    named = (settings["model"], settings["seed"], settings["spread"])
    with (
        disk_errors(output),
        output.open("a", encoding="utf-8") as file,
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("", total=total, completed=done)
        for item, mean in items:
            file.write(json.dumps(record(item, *named, mean), ensure_ascii=False) + "\n")
            file.flush()
            done += 1
            remarks.add(item)
            bar.update(task, completed=done)
    print(f"{output}: {_texts(done)}", file=sys.stderr)


def _resume(output: Path, texts: Iterator[str], settings: dict[str, Any]) -> int:
    """Skip the texts that the output already holds; drop a last line that was cut short."""
    from ..files import disk_errors, write_text

    beside = output.with_name(output.name + ".settings.json")
    if output.exists() and not output.is_file():
        raise BadInput(f"{output} is not a file that can be continued: name another --output")
    done = end = 0
    with disk_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        written = beside.read_text(encoding="utf-8") if beside.exists() else None
        if output.exists():
            if output.stat().st_size and written is None:
                raise BadInput(
                    f"{output} was not written by polyphrase generate: give another --output"
                )
            done, end = _whole_lines(output, texts)
            if done and not _same(written, settings):
                raise BadInput(
                    f"{output} was written with other settings: give those of {beside.name}, "
                    "or another --output"
                )
            with output.open("r+b") as file:
                file.truncate(end)
        if done:
            print(f"{output}: continuing after {_texts(done)}", file=sys.stderr)
    write_text(beside, json.dumps(settings, indent=2) + "\n")
    return done


def _same(written: str | None, settings: dict[str, Any]) -> bool:
    try:
        return written is not None and json.loads(written) == json.loads(json.dumps(settings))
    except ValueError:
        return False


def _whole_lines(output: Path, texts: Iterator[str]) -> tuple[int, int]:
    """How many texts are written to the end, and in how many bytes."""
    done = end = 0
    with output.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            try:
                source = json.loads(line)["source"]
            except (ValueError, KeyError, TypeError):
                raise BadInput(
                    f"{output}, line {done + 1}: not written by polyphrase generate; "
                    "give another --output"
                ) from None
            if next(texts, None) != source:
                raise BadInput(
                    f"{output}, line {done + 1}: holds another text than the input does there; "
                    "give another --output"
                )
            done, end = done + 1, end + len(line)
    return done, end


def _texts(count: int) -> str:
    return f"{count} text" + ("s" if count != 1 else "")
