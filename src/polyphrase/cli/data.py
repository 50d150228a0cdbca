"""`polyphrase data`: fetch the paper's corpora, audit and split any corpus."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from ..data.audit import Audit
    from ..data.readers import Example
    from ..metrics.metric import Score

app = typer.Typer(
    help="Fetch, audit and split corpora.", no_args_is_help=True, rich_markup_mode=None
)

COPIED_ROWS = 100_000
"""Of a larger part this many rows are enough to tell what copying scores."""

Files = Annotated[
    list[str],
    typer.Argument(
        help="Corpus files; PART=FILE names the part where the file's name does not tell it."
    ),
]


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="twitter-url, gyafc-em or gyafc-fr.")],
    to: Annotated[
        Path | None, typer.Option(help="The folder to fill.", show_default="data/NAME")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="What you have already: the folder of GYAFC, the raw candidates of Twitter URL.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the cut of the raw candidates.")] = 0,
) -> None:
    """Bring one of the paper's corpora into a folder."""
    from ..data.corpora import CORPORA, get

    folder = Path("data") / name if to is None else to
    get(name, folder, source, seed)
    print(f"{folder}: {CORPORA[name].description} ({CORPORA[name].licence})")


@app.command("audit")
def audit(
    files: Files,
    near: Annotated[
        float, typer.Option(help="Jaccard index of 5-grams that makes a near-duplicate.")
    ] = 0.8,
    max_tokens: Annotated[int, typer.Option(help="More tokens than these are too many.")] = 50,
    fail_on: Annotated[
        str | None,
        typer.Option(
            help="'leak': exit with 1 if a later part holds pairs or sources of an "
            "earlier one; 'near': also if near-duplicates of them."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Show what the parts of a corpus share, which rows are no good, and what copying scores."""
    from ..data.audit import audit
    from ..data.readers import read_examples

    if fail_on not in (None, "leak", "near"):
        raise BadInput(f"--fail-on {fail_on}: give leak or near")
    parts = _parts(files)
    kept: dict[str, list[Example]] = {
        part: [] for part in parts if part != "train" or len(parts) == 1
    }

    def rows(part: str) -> Iterator[Example]:
        for row in read_examples(parts[part]):
            if part in kept and len(kept[part]) < COPIED_ROWS:
                kept[part].append(row)
            yield row

    found = audit({part: rows(part) for part in parts}, max_tokens, near)
    copies = {part.name: _copying(kept[part.name]) for part in found.parts if part.name in kept}
    if as_json:
        scores = {
            part: {row: dataclasses.asdict(score) for row, score in rows.items()}
            for part, rows in copies.items()
        }
        whole = {**dataclasses.asdict(found), "copying": scores}
        print(json.dumps(whole, indent=1, ensure_ascii=False))
    else:
        from rich.console import Console

        show(found, copies, Console(highlight=False))
    exact = any(leak.pairs or leak.sources for leak in found.leaks)
    close = any(leak.near_pairs or leak.near_sources for leak in found.leaks)
    if (fail_on is not None and exact) or (fail_on == "near" and close):
        raise typer.Exit(1)


@app.command("split")
def split(
    files: Files,
    by: Annotated[
        str,
        typer.Option(help="'source': no source in two parts; 'text': no text, on either side."),
    ] = "source",
    validation: Annotated[float, typer.Option(help="Share of the sources for validation.")] = 0.05,
    test: Annotated[float, typer.Option(help="Share of the sources for test.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Another seed makes another split.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The split file to write: hashes, no texts.")
    ] = None,
    apply: Annotated[
        Path | None, typer.Option(help="A split file to follow instead of making a split.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="The folder for train, validation and test as JSONL.")
    ] = None,
) -> None:
    """Split a corpus without leaks, whatever parts its rows were in."""
    from ..data.readers import read_examples
    from ..data.split import make_split, read_split, write_parts, write_split

    if by not in ("source", "text"):
        raise BadInput(f"--by {by}: give source or text")
    if out is None and to is None:
        raise BadInput(
            "nothing to write: give --out for the split file, --to for the parts, or both"
        )

    def rows() -> Iterator[Example]:
        return (row for path in _parts(files).values() for row in read_examples(path))

    if "-" in _parts(files).values():
        raise BadInput("standard input can be read only once, a split reads it twice: name a file")
    if apply is not None:
        made = read_split(apply)
    else:
        made = make_split(rows(), "text" if by == "text" else "source", validation, test, seed)
    if to is not None:
        for part, (count, sources) in write_parts(to, made, rows).items():
            print(f"{to / part}.jsonl: {count:,} rows, {sources:,} sources")
    if out is not None:
        write_split(out, made)
        print(
            f"{out}: {len(made.validation):,} sources for validation, {len(made.test):,} for test"
        )


def show(found: Audit, copies: Mapping[str, Mapping[str, Score]], console: Console) -> None:
    """Print an audit as tables that fit a narrow console."""
    from rich.table import Table

    def table(first: str, *columns: str) -> Table:
        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        made.add_column(first)
        for column in columns:
            made.add_column(column, justify="right")
        return made

    names = [part.name for part in found.parts]
    rows = table("rows", *names)
    for title, field in (
        ("all", "rows"),
        ("different sources", "different_sources"),
        ("different pairs", "different_pairs"),
        ("repeat an earlier row", "duplicates"),
        ("reference = source", "identical"),
        ("empty source or reference", "empty"),
        (f"more than {found.max_tokens} tokens", "too_long"),
        ("tokens of the longest", "longest"),
    ):
        rows.add_row(title, *(f"{getattr(part, field):,}" for part in found.parts))
    console.print(rows)
    size = {part.name: part for part in found.parts}
    if found.leaks:
        console.print()
        leaks = table("also in", *(f"{leak.later} in {leak.earlier}" for leak in found.leaks))
        for title, field, whole in (
            ("pairs", "pairs", "pairs"),
            ("  or near", "near_pairs", "pairs"),
            ("sources", "sources", "rows"),
            ("  or near", "near_sources", "rows"),
            ("references", "references", "pairs"),
        ):
            counts = [
                (getattr(leak, field), getattr(size[leak.later], whole)) for leak in found.leaks
            ]
            leaks.add_row(title, *(f"{count:,} ({count / of:.1%})" for count, of in counts))
        console.print(leaks)
        console.print(
            f"near: character 5-grams of the normal form with a Jaccard index of at least "
            f"{found.near_threshold:g}"
        )
    console.print()
    parts = list(copies)
    scores = table("copying the source scores", *parts)
    for title in next(iter(copies.values())):
        scores.add_row(title, *(_interval(copies[part][title]) for part in parts))
    console.print(scores)
    console.print("± is half the width of the 95% bootstrap interval")
    for part in parts:
        if size[part].rows > COPIED_ROWS:
            console.print(f"of {part} the first {COPIED_ROWS:,} rows are scored")


def _interval(score: Score) -> str:
    return f"{score.value:.3f} ±{(score.high - score.low) / 2:.3f}"


def _copying(rows: Sequence[Example]) -> dict[str, Score]:
    """BLEU-2 and BLEU-4 of copying, row by row and with the references of a source together."""
    from ..evaluation.evaluate import Protocol, copying
    from ..evaluation.predictions import References
    from ..metrics.catalogue import Settings

    references = References(
        "", tuple(row.references for row in rows), tuple(row.source for row in rows)
    )
    scores = {}
    for group, what in ((False, "each row"), (True, "rows grouped by source")):
        for order in (2, 4):
            found = copying(references, ("bleu",), Protocol(group=group), Settings(order=order))
            scores[f"BLEU-{order}, {what}"] = found["bleu"]
    return scores


def _parts(files: Sequence[str]) -> dict[str, str]:
    """The files by the part that they hold."""
    from ..data.audit import part_name

    parts: dict[str, str] = {}
    for file in files:
        part, path = file.split("=", 1) if "=" in file and not Path(file).exists() else ("", file)
        part = part or part_name(path)
        if part in parts:
            raise BadInput(f"{parts[part]} and {path} are both {part}; name them as PART=FILE")
        parts[part] = path
    return parts
