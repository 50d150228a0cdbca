"""The lines of a predictions file: one JSON object per source."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..api import Rewrites


def record(
    item: Rewrites, model: str, seed: int, spread: float, mean: str | None = None
) -> dict[str, Any]:
    """What is known of the rewrites of one source, `mean` being the posterior mean's output."""
    fields: dict[str, Any] = {
        "source": item.source,
        "candidates": [asdict(candidate) for candidate in item.candidates],
        "model": model,
        "seed": seed,
        "spread": spread,
    }
    if mean is not None:
        fields["mean"] = mean
    if item.truncated:
        fields["truncated"] = True
    return fields
