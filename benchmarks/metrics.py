"""Metrics: how fast, how much memory, and whether the values are those of the libraries.

3,000 x 10 outputs are scored. With a corpus of many references per source (`--data` with the folder
of Twitter URL) the outputs are ten references of each; without one they are sentences of the same
lengths in a made-up language.
"""

import itertools
import random
import statistics
import tracemalloc
import warnings
from collections import defaultdict
from pathlib import Path

import nltk
from nltk.translate.bleu_score import corpus_bleu

from polyphrase.allocator import keep_big_buffers
from polyphrase.data.audit import part_name
from polyphrase.data.readers import read_examples
from polyphrase.metrics.bleu import SelfBleu
from polyphrase.metrics.catalogue import CATALOGUE, Settings, View
from polyphrase.metrics.diversity import Distinct, Unique
from polyphrase.metrics.metric import Metric
from polyphrase.metrics.ngrams import Floats, Outputs
from polyphrase.metrics.significance import RESAMPLES, bootstrap

from .machine import seconds
from .table import Line

Sets = list[list[str]]
SAMPLES, SUBSET = 10, 5


def measure(quick: bool, data: str | None = None) -> list[Line]:
    """The lines of the table about the metrics."""
    keep_big_buffers()  # as the command line does
    size = 1_000 if quick else 3_000
    pools = made_up(size) if data is None else from_corpus(Path(data), size)
    draw = random.Random(0)
    outputs = [draw.sample(pool, SAMPLES) for pool in pools.values()]
    references = [[draw.choice(pool)] for pool in pools.values()]
    text = "made-up text" if data is None else "a corpus"
    return [
        *(diversity(outputs, order, text) for order in (2, 4)),
        difference(outputs),
        resampling(outputs, references, list(pools)),
        memory(outputs),
    ]


def from_corpus(folder: Path, size: int) -> dict[str, list[str]]:
    """Sources of the training file that have enough different references, with these."""
    path = next((file for file in sorted(folder.iterdir()) if part_name(file) == "train"), None)
    if path is None:
        raise SystemExit(f"{folder} has no training file")
    pools: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for example in read_examples(path):
        pools[example.source].update(dict.fromkeys(example.references))
    enough = {source: list(pool) for source, pool in pools.items() if len(pool) >= SAMPLES}
    if len(enough) < size:
        raise SystemExit(f"{path} has {len(enough)} sources with {SAMPLES} references, not {size}")
    return {source: enough[source] for source in list(enough)[:size]}


def made_up(size: int) -> dict[str, list[str]]:
    """Sources with twelve variants each: words dropped and added, frequent ones more often."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 9))) for _ in range(20_000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    pools = {}
    for _ in range(size):
        source = draw.choices(words, weights, k=draw.randint(8, 22))
        variants = []
        for _ in range(SAMPLES + 2):
            kept = [word for word in source if draw.random() > 0.3]
            kept += draw.choices(words, weights, k=draw.randint(1, 6))
            variants.append(" ".join(kept))
        pools[" ".join(source)] = variants
    return pools


def diversity(outputs: Sets, order: int, text: str) -> Line:
    """How much faster than the paper's scripts; both alternate, and the best of each counts."""
    times = {with_nltk: float("inf"), with_polyphrase: float("inf")}
    for _ in range(3):
        for function, rounds in ((with_nltk, 1), (with_polyphrase, 4)):
            taken = seconds(lambda run=function: run(outputs, order), rounds)  # type: ignore[misc]
            times[function] = min(times[function], taken)
    slow, fast = times.values()
    return Line(
        f"self-BLEU of order {order}, Div-4, uniqueness of {len(outputs):,} × {SAMPLES}: "
        "NLTK as in the paper's scripts / here",
        slow / fast,
        20,
        True,
        f"{slow:.2f} s against {fast * 1e3:.0f} ms; {text}",
    )


def difference(outputs: Sets) -> Line:
    """How far the values are from those of the scripts."""
    pairs = [
        pair
        for order in (2, 4)
        for pair in zip(with_nltk(outputs, order), with_polyphrase(outputs, order), strict=True)
    ]
    apart = max(abs(one - other) for one, other in pairs)
    return Line("the largest difference of these values", apart, 1e-9, False, "orders 2 and 4")


def with_nltk(outputs: Sets, order: int) -> list[float]:
    """What the paper's scripts compute, in their way."""
    five = [texts[:SUBSET] for texts in outputs]
    shares = []
    for texts in five:
        grams = [gram for text in texts for gram in nltk.ngrams(text.split(), 4)]
        if grams:
            shares.append(len(set(grams)) / len(grams))
    hypotheses, references = [], []
    for texts in five:
        for k, text in enumerate(texts):
            hypotheses.append(text.split())
            references.append([other.split() for j, other in enumerate(texts) if j != k])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of orders without a match
        self_bleu = corpus_bleu(references, hypotheses, weights=(1 / order,) * order)
    unique = statistics.fmean(len(set(texts)) / len(texts) for texts in outputs)
    return [self_bleu, statistics.fmean(shares), unique]


def with_polyphrase(outputs: Sets, order: int) -> list[float]:
    """The same here."""
    five = Outputs([texts[:SUBSET] for texts in outputs])
    views: list[tuple[Metric, Outputs]] = [
        (SelfBleu(order=order), five),
        (Distinct("div-4", 4), five),
        (Unique(), Outputs(outputs)),
    ]
    return [float(metric.score(metric.statistics(view).sum(axis=0))) for metric, view in views]


def resampling(outputs: Sets, references: Sets, sources: list[str]) -> Line:
    """The resamples of all metrics without a neural model beside scoring once."""
    names = [name for name, entry in CATALOGUE.items() if entry.default]

    def score() -> list[tuple[Metric, Floats]]:
        views: dict[View, Outputs] = {
            "best": Outputs([texts[:1] for texts in outputs], references, sources),
            "samples": Outputs(outputs, references, sources),
            "subset": Outputs([texts[:SUBSET] for texts in outputs]),
        }
        made = [(CATALOGUE[name].make(Settings()), CATALOGUE[name].view) for name in names]
        return [(metric, metric.statistics(views[view])) for metric, view in made]

    measured = score()  # METEOR looks the synonyms up once
    once = seconds(score, 2)
    resampled = seconds(lambda: bootstrap(measured, seed=0), 3)
    return Line(
        f"{RESAMPLES:,} bootstrap resamples of {len(names)} metrics / scoring {len(outputs):,} "
        "sources once",
        resampled / once,
        2,
        False,
        f"{resampled:.3f} against {once:.2f} s",
    )


def memory(outputs: Sets) -> Line:
    """The peak for twice as many outputs by the peak: of many sources, and all of one source."""
    texts = [text for row in outputs for text in row]
    growth, details = [], []
    for what, sets in (
        (f"{SAMPLES} per source", [outputs[: len(outputs) // k] for k in (4, 2, 1)]),
        ("all of one source", [[texts[: len(texts) // k]] for k in (4, 2, 1)]),
    ):
        peaks = [peak(rows) for rows in sets]
        growth += [after / before for before, after in itertools.pairwise(peaks)]
        details.append(f"{what}: {', '.join(f'{size / 2**20:.0f}' for size in peaks)} MiB")
    return Line(
        f"memory for twice the outputs / for once, up to {len(texts):,}",
        max(growth),
        2.2,
        False,
        "; ".join(details) + "; a square would be 4",
    )


def peak(rows: Sets) -> int:
    """Bytes that self-BLEU, Div-4 and uniqueness hold at most."""
    tracemalloc.start()
    outputs = Outputs(rows)
    for metric in (SelfBleu(), Distinct("div-4", 4), Unique()):
        metric.statistics(outputs)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most
