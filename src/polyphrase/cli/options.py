"""Flags that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BadInput

if TYPE_CHECKING:
    from ..api import Rewriter
    from ..decoding.settings import Search

Model = Annotated[
    str,
    typer.Option(
        help="'paraphraser' (embedded), a trained folder, or any encoder-decoder by name."
    ),
]
Number = Annotated[int, typer.Option("-n", "--number", help="How many rewrites of each text.")]
Spread = Annotated[
    float | None,
    typer.Option(
        help="Multiplies the posterior's covariance; 0 is its mean. Default: the model's."
    ),
]
Seed = Annotated[int, typer.Option(help="Names the random numbers.")]
Strict = Annotated[bool, typer.Option(help="Refuse a text that is longer than the model reads.")]


def _search(
    search: Annotated[
        str | None,
        typer.Option(
            help="beam, greedy, diverse-beam or sample. Default: the model's.", show_default="beam"
        ),
    ] = None,
    beams: Annotated[
        int | None, typer.Option(help="Width of beam search.", show_default="10")
    ] = None,
    groups: Annotated[
        int | None, typer.Option(help="diverse-beam: groups of beams.", show_default="5")
    ] = None,
    diversity: Annotated[
        float | None,
        typer.Option(help="diverse-beam: nats that a word costs the later groups."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="sample: logits are divided by it.", show_default="1")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="sample: among the k likeliest; 0 is all.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="sample: among this much probability.", show_default="1")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Beams score log p / length ** this.", show_default="1")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="The most tokens of a rewrite.", show_default="60")
    ] = None,
    min_length: Annotated[
        int | None, typer.Option(help="The fewest tokens of a rewrite.", show_default="0")
    ] = None,
    no_repeat_ngram: Annotated[
        int | None, typer.Option(help="No rewrite holds any n tokens twice; 0 is off.")
    ] = None,
) -> None:
    """The flags of a search: the fields of `Search`."""


def with_search(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of a search; it receives them as one mapping, `search`."""
    own = inspect.signature(command, eval_str=True).parameters
    flags = inspect.signature(_search, eval_str=True).parameters

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        search = {name: values.pop(name) for name in flags}
        command(**values, search=search)

    parameters = [p for name, p in own.items() if name != "search"] + list(flags.values())
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def refuse_numbers(n: int, spread: float | None) -> None:
    """Refuse what no model can do, before one is loaded."""
    if n < 1:
        raise BadInput(f"n is {n}: ask for 1 rewrite or more")
    if spread is not None and not 0 <= spread < float("inf"):
        raise BadInput(f"spread is {spread:g}: give 0 (the posterior mean) or more")


def search_for(flags: dict[str, Any], rewriter: Rewriter, n: int, spread: float | None) -> Search:
    """The search that the flags ask of a model."""
    chosen = {name: value for name, value in flags.items() if value is not None}
    if "search" in chosen:
        chosen["method"] = chosen.pop("search")
    return rewriter.search(n, spread, **chosen)
