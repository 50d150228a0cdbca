"""`polyphrase paraphrase`: a text in, different rewrites out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ..errors import BadInput
from . import options


@options.with_search
def paraphrase(
    text: Annotated[
        str | None, typer.Argument(help="What to rewrite; standard input, line by line, if absent.")
    ] = None,
    n: options.Number = 10,
    model: options.Model = "paraphraser",
    spread: options.Spread = None,
    seed: options.Seed = 0,
    strict: options.Strict = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="The first n samples as they are, repetitions included.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per text.")] = False,
    *,
    search: dict[str, Any],
) -> None:
    """Rewrite a text in n different ways."""
    if text is not None and not text.strip():
        raise BadInput("the text is empty: give a sentence to rewrite")
    if n < 1:
        raise BadInput(f"n is {n}: ask for 1 rewrite or more")

    from ..api import load
    from .records import record

    rewriter = load(model)
    spread = rewriter.spread if spread is None else spread
    texts = iter([text]) if text is not None else _lines()
    rewritten = rewriter.rewrite(
        texts,
        n,
        spread,
        seed,
        options.search_for(search, rewriter, n, spread),
        distinct=not raw,
        strict=strict,
    )
    for item in rewritten:
        if as_json:
            print(json.dumps(record(item, rewriter.name, seed, spread), ensure_ascii=False))
        else:
            for candidate in item.candidates:
                print(candidate.text)
            if text is None:
                print()
        if len(item.candidates) < n:
            print(
                f"polyphrase: only {len(item.candidates)} rewrites differ; raise --spread for more",
                file=sys.stderr,
            )
        sys.stdout.flush()


def _lines() -> Iterator[str]:
    from ..data.readers import read_sources

    if sys.stdin.isatty():
        print("polyphrase: one text per line, end with Ctrl-D", file=sys.stderr)
    yield from read_sources("-")
