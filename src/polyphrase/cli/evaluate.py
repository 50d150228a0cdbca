"""`polyphrase evaluate`: anybody's outputs scored, with intervals and tests."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from ..evaluation.evaluate import Report, System

ALPHA = 0.05
"""A difference with a smaller p-value is marked."""


def evaluate(
    predictions: Annotated[
        list[str],
        typer.Option(
            help="Outputs, JSONL or a text with one per line; name more files for more systems."
        ),
    ],
    references: Annotated[
        list[str],
        typer.Option(help="Sources with references; or texts of references, one option each."),
    ],
    more: Annotated[list[str] | None, typer.Argument(help="More systems.")] = None,
    sources: Annotated[
        str | None, typer.Option(help="The sources, if no other file has them.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="Names with commas between; 'all'. Default: all without a neural model."),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="'text' or 'code': what the paper says, or what its scripts do.")
    ] = "text",
    samples: Annotated[int, typer.Option(help="Outputs per source that are scored.")] = 10,
    subset: Annotated[int, typer.Option(help="How many of them self-BLEU and Div-4 see.")] = 5,
    order: Annotated[
        int | None,
        typer.Option(help="BLEU's n-gram order.", show_default="2; code: 4", min=1),
    ] = None,
    tokenizer: Annotated[
        str, typer.Option(help="whitespace, or 13a as sacreBLEU's.")
    ] = "whitespace",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    group: Annotated[
        bool,
        typer.Option("--group", help="Each source once, against the references of all its rows."),
    ] = False,
    wordnet: Annotated[
        Path | None, typer.Option(help="Folder of WordNet's dict files, for METEOR.")
    ] = None,
    embedder: Annotated[
        str | None, typer.Option(help="Sentence embeddings for 'meaning': folder or hub name.")
    ] = None,
    language_model: Annotated[
        str | None, typer.Option(help="Language model for 'perplexity': folder or hub name.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the subset, the bootstrap and the tests.")] = 12345,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Score outputs against references; mark what differs from the first system."""
    from ..evaluation import evaluate as evaluation
    from ..evaluation.predictions import read_predictions, read_references
    from ..metrics.catalogue import CATALOGUE, Settings
    from ..metrics.ngrams import Tokens

    protocols = {"text": (evaluation.TEXT, 2), "code": (evaluation.CODE, 4)}
    if protocol not in protocols:
        raise BadInput(f"no protocol is called {protocol!r}; known are text and code")
    if tokenizer not in ("whitespace", "13a"):
        raise BadInput(f"no tokenizer is called {tokenizer!r}; known are whitespace and 13a")
    base, usual_order = protocols[protocol]
    settings = Settings(
        order=order or usual_order,
        tokens=Tokens("13a" if tokenizer == "13a" else "whitespace", lowercase),
        wordnet=None if wordnet is None else str(wordnet),
    )
    if embedder is not None:
        settings = dataclasses.replace(settings, embedder=embedder)
    if language_model is not None:
        settings = dataclasses.replace(settings, language_model=language_model)
    names = list(CATALOGUE) if metrics == "all" else None if metrics is None else metrics.split(",")
    report = evaluation.evaluate(
        [read_predictions(path) for path in [*predictions, *(more or [])]],
        read_references(references, sources),
        None if names is None else [name.strip() for name in names],
        dataclasses.replace(base, samples=samples, subset=subset, seed=seed, group=group),
        settings,
    )
    if as_json:
        print(json.dumps(_plain(dataclasses.asdict(report)), indent=1, ensure_ascii=False))
    else:
        from rich.console import Console

        show(report, Console(highlight=False))


def show(report: Report, console: Console) -> None:
    """Print a report as tables that fit the console."""
    from rich.table import Table

    from ..evaluation.evaluate import COPY
    from ..metrics.catalogue import CATALOGUE

    baseline, *others = report.systems
    p_values = {(found.system, found.metric): found.p for found in report.differences}
    names = [name for name in CATALOGUE if name in baseline.scores]
    first = max(len(CATALOGUE[name].title) for name in names) + 2
    fit = max(1, (console.width - first) // 17 - 1)
    for start in range(0, max(1, len(others)), fit):
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(f"{report.rows:,} rows", no_wrap=True)
        beside = others[start : start + fit]
        systems = [baseline, *beside]
        for system in systems:
            table.add_column(system.name, justify="right", overflow="fold")
        for name in names:
            if start and not any(name in system.scores for system in beside):
                continue
            arrow = "↑" if baseline.scores[name].higher_is_better else "↓"
            cells = [
                _cell(system, name, p_values.get((system.name, name), math.nan))
                for system in systems
            ]
            table.add_row(f"{CATALOGUE[name].title} {arrow}", *cells)
        console.print(table)
        console.print()
    console.print(
        "± is half the width of the 95% bootstrap interval over "
        f"{report.sources:,} different sources; ↑ more is better, ↓ less."
    )
    if others:
        console.print(
            f"* differs from {baseline.name} with p < {ALPHA:g} by approximate randomisation"
            + ("; copy repeats the source." if others[-1].name == COPY else ".")
        )
    for name in names:
        for system in report.systems:
            if name in system.scores and system.scores[name].skipped:
                skipped = system.scores[name].skipped
                console.print(f"{system.name}: {skipped:,} rows do not count for {name}.")
    for found in report.frontiers:
        console.print(
            f"{found.model}: hypervolume {found.hypervolume:.4f} of avg-BLEU x (1 - self-BLEU), "
            f"{len(found.points)} settings on the frontier"
        )
    for note in report.notes:
        console.print(f"Note: {note}.")
    console.print()
    for name in names:
        console.print(baseline.scores[name].signature, style="dim", soft_wrap=True)


def _cell(system: System, name: str, p: float) -> str:
    if name not in system.scores:
        return "-  "
    score = system.scores[name]
    digits = 1 if score.value >= 10 else 3
    half = (score.high - score.low) / 2
    return f"{score.value:.{digits}f} ±{half:.{digits}f}" + (" *" if p < ALPHA else "  ")


def _plain(value: Any) -> Any:
    """The value with null for what is not a number: JSON has no word for it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
