"""`polyphrase paraphrase`: a text in, different rewrites out."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BadInput
from . import options

if TYPE_CHECKING:
    from ..api import Rewrites


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
    """Rewrite a text in n different ways.

    Of several texts on standard input, each is printed before its rewrites, which a tab indents.
    """
    if text is not None and not text.strip():
        raise BadInput("the text is empty: give a sentence to rewrite")
    if text is not None and not _is_unicode(text):
        raise BadInput(
            "the text is not UTF-8: convert it, or set the locale that it was written in"
        )
    options.refuse_numbers(n, spread)

    from ..api import load
    from ..files import disk_errors
    from .records import record
    from .remarks import Remarks

    rewriter = load(model)
    spread = rewriter.spread if spread is None else spread
    chosen = options.search_for(search, rewriter, n, spread)
    rewritten = itertools.chain.from_iterable(
        rewriter.rewrite(texts, n, spread, seed, chosen, distinct=not raw, strict=strict)
        for texts in ([[text]] if text is not None else _texts_to_read())
    )
    remarks = Remarks(rewriter, n, spread, chosen)
    with remarks.collected():
        for item in rewritten:
            if as_json:
                block = json.dumps(record(item, rewriter.name, seed, spread), ensure_ascii=False)
            elif text is None:
                block = "\n\t".join(map(_line, (item.source, *_texts(item))))
            else:
                block = "\n".join(map(_line, _texts(item)))
            with disk_errors("standard output"):
                if block:
                    print(block, flush=True)
            remarks.add(item)


def _texts(item: Rewrites) -> list[str]:
    return [candidate.text for candidate in item.candidates]


def _line(text: str) -> str:
    """A text on one line, with no tab: rewrites of several texts are told by theirs."""
    return " ".join(text.split())


def _is_unicode(text: str) -> bool:
    """Whether a word of the command line was text: Python keeps other bytes as surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _texts_to_read() -> Iterator[Iterable[str]]:
    """Standard input: all of it together, or a line at a time from a person who waits."""
    from ..data.readers import read_sources

    if not sys.stdin.isatty():
        yield read_sources("-")
        return
    print("polyphrase: one text per line, end with Ctrl-D", file=sys.stderr)
    for line in sys.stdin:
        if line.strip():
            yield [line.strip()]
