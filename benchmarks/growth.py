"""Growth of the cost with samples, beams, source length and corpus size, as plots."""

import json
import time
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from polyphrase import Search, load
from polyphrase.api import Rewriter

from .sentences import SENTENCES, of_length
from .table import FOLDER, Line


def cost(rewriter: Rewriter, texts: list[str], n: int, beams: int, words: int) -> float:
    """Seconds per text."""
    search = Search(beams=beams, max_length=words, min_length=words - 2)
    start = time.perf_counter()
    for _ in rewriter.rewrite(texts, n=n, search=search):
        pass
    return (time.perf_counter() - start) / len(texts)


def measure(quick: bool) -> list[Line]:
    """Measure, plot and judge."""
    rewriter = load()
    few = list(SENTENCES[:4])
    cost(rewriter, few, 1, 1, 8)
    corpora = (100, 1_000) if quick else (100, 1_000, 10_000)
    curves: dict[str, dict[int, float]] = {
        "samples": {n: cost(rewriter, few[:2], n, 4, 16) for n in (1, 2, 5, 10, 20, 50, 100)},
        "beams": {k: cost(rewriter, few, 4, k, 16) for k in (1, 2, 5, 10, 20)},
        "source tokens": {
            length: cost(rewriter, [of_length(round(length * 0.8))] * 4, 4, 4, 16)
            for length in (8, 16, 32, 64, 128, 256, 512)
        },
        "corpus size": {
            size: cost(rewriter, list(SENTENCES) * (size // 64 + 1), 1, 1, 12) for size in corpora
        },
    }
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "growth.json").write_text(json.dumps(curves, indent=2) + "\n")
    draw(curves)
    samples, corpus = curves["samples"], curves["corpus size"]
    return [
        Line(
            "cost of 10 samples / 10 × the cost of 1",
            samples[10] / samples[1] / 10,
            1,
            False,
            f"{samples[10]:.2f} against {samples[1]:.2f} s a sentence, 4 beams × 16 words",
        ),
        Line(
            f"cost per sentence at {corpora[-1]} sentences / at {corpora[0]}",
            corpus[corpora[-1]] / corpus[corpora[0]],
            1.1,
            False,
            "greedy, one sample; linear is 1",
        ),
    ]


def draw(curves: dict[str, dict[int, float]]) -> None:
    """One panel for each curve, in `results/growth.png`."""
    figure, panels = pyplot.subplots(1, len(curves), figsize=(4 * len(curves), 3.2))
    for panel, (name, curve) in zip(panels, curves.items(), strict=True):
        axes: Any = panel
        axes.plot(list(curve), list(curve.values()), marker="o")
        axes.set(xscale="log", yscale="log", xlabel=name, ylabel="seconds per sentence")
        axes.grid(visible=True, alpha=0.3)
    figure.tight_layout()
    figure.savefig(FOLDER / "growth.png", dpi=120)
    pyplot.close(figure)
