"""`polyphrase generate`: a file of texts in, a file of rewrites out, resumable."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import BadInput
from . import options


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
    if n < 1:
        raise BadInput(f"n is {n}: ask for 1 rewrite or more")
    from ..data.readers import read_sources

    texts = read_sources(source)
    first = next(texts, None)  # an unreadable or empty file is known before the model is loaded
    if first is None:
        raise BadInput(f"{source} is empty: give one text per line")
    texts = itertools.chain([first], texts)

    from ..api import load

    rewriter = load(model)
    spread = rewriter.spread if spread is None else spread
    settings = {"model": rewriter.name, "seed": seed, "spread": spread, "n": n, **search}
    done = _resume(output, texts, settings)
    chosen = options.search_for(search, rewriter, n, spread)
    texts, again = itertools.tee(texts)
    means: Iterator[str | None] = itertools.repeat(None)
    if mean:
        one = options.search_for(search, rewriter, 1, 0.0)
        means = (item.candidates[0].text for item in rewriter.rewrite(again, 1, 0.0, seed, one))
    rewritten = rewriter.rewrite(texts, n, spread, seed, chosen, distinct=distinct, strict=strict)
    _write(output, zip(rewritten, means), rewriter.name, seed, spread, done)  # noqa: B905


def _write(
    output: Path, items: Iterator[Any], model: str, seed: int, spread: float, done: int
) -> None:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from ..files import disk_errors
    from .records import record

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.completed} texts"), TimeElapsedColumn())
    with (
        disk_errors(output),
        output.open("a", encoding="utf-8") as file,
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("", total=None, completed=done)
        for item, mean in items:
            line = json.dumps(record(item, model, seed, spread, mean), ensure_ascii=False)
            file.write(line + "\n")
            file.flush()
            done += 1
            bar.update(task, completed=done)
    print(f"{output}: {done} texts", file=sys.stderr)


def _resume(output: Path, texts: Iterator[str], settings: dict[str, Any]) -> int:
    """Skip the texts that the output already holds; drop a last line that was cut short."""
    from ..files import disk_errors, write_text

    beside = output.with_name(output.name + ".settings.json")
    with disk_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    done = 0
    if output.exists():
        done = _whole_lines(output, texts)
    if done:
        written = json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else None
        if written != settings:
            raise BadInput(
                f"{output} was written with other settings: give another --output or remove it"
            )
        print(f"{output}: continuing after {done} texts", file=sys.stderr)
    write_text(beside, json.dumps(settings, indent=2) + "\n")
    return done


def _whole_lines(output: Path, texts: Iterator[str]) -> int:
    done = end = 0
    with output.open("rb") as file:
        for line in file:
            try:
                source = json.loads(line)["source"] if line.endswith(b"\n") else None
            except (ValueError, KeyError, TypeError):
                raise BadInput(
                    f"{output}, line {done + 1}: not written by polyphrase generate; "
                    "give another --output"
                ) from None
            if source is None:
                break
            if next(texts, None) != source:
                raise BadInput(
                    f"{output}, line {done + 1}: holds another text than the input does there; "
                    "give another --output"
                )
            done, end = done + 1, end + len(line)
    with output.open("r+b") as file:
        file.truncate(end)
    return done
