"""Metrics: how fast, how much memory, and whether the values are those of the libraries.

`python -m benchmarks.metrics [TSV]` scores 3,000 x 10 outputs. With a corpus of several references
per source (Twitter URL's train.tsv) the outputs are ten references each; without one they are
sentences of the same lengths drawn from a made-up language.

Goals: self-BLEU, Div-4 and uniqueness at least 20 times as fast as with NLTK, as the paper's
scripts compute them; 1,000 bootstrap resamples of all metrics in less than twice the time of
scoring once; memory that grows with the number of outputs and not with its square.
"""

import importlib
import random
import statistics
import sys
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import nltk
from nltk.translate.bleu_score import corpus_bleu

from polyphrase.data.near import NearDuplicates
from polyphrase.data.readers import read_examples
from polyphrase.metrics.bleu import SelfBleu
from polyphrase.metrics.catalogue import CATALOGUE, Settings
from polyphrase.metrics.diversity import Distinct, Unique
from polyphrase.metrics.metric import Metric
from polyphrase.metrics.ngrams import Outputs
from polyphrase.metrics.significance import bootstrap, randomisation

T = TypeVar("T")
Sets = list[list[str]]
SOURCES, SAMPLES, SUBSET = 3_000, 10, 5


def main(arguments: Sequence[str]) -> None:
    """Measure and print everything."""
    pools = from_corpus(arguments[0]) if arguments else made_up(SOURCES + 1_000)
    sources = list(pools)[:SOURCES]
    draw = random.Random(0)
    outputs = [draw.sample(pools[source], SAMPLES) for source in sources]
    references = [[draw.choice(pools[source])] for source in sources]
    diversity(outputs)
    resampling(outputs, references, sources)
    memory(outputs)
    near([text for pool in pools.values() for text in pool])


def from_corpus(path: str) -> dict[str, list[str]]:
    """The different references of each source that has enough of them."""
    pools: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for example in read_examples(path):
        pools[example.source].update(dict.fromkeys(example.references))
    enough = {source: list(pool) for source, pool in pools.items() if len(pool) >= SAMPLES}
    if len(enough) < SOURCES:
        raise SystemExit(f"{path} has {len(enough)} sources with {SAMPLES} references")
    return enough


def made_up(size: int) -> dict[str, list[str]]:
    """Sources with twelve variants each: words dropped, changed and moved."""
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


def diversity(outputs: Sets) -> None:
    """Self-BLEU, Div-4 and uniqueness, as the paper's scripts and as here."""
    print("self-BLEU, Div-4, uniqueness of 3,000 x 10 outputs (goal: 20 times as fast)")
    for order in (4, 2):
        theirs, slow = best(partial(with_nltk, outputs, order), 3)
        ours, fast = best(partial(with_polyphrase, outputs, order), 10)
        apart = max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
        print(
            f"  order {order}: NLTK {slow:.2f} s, here {fast * 1e3:.0f} ms: "
            f"{slow / fast:.1f} times; largest difference {apart:.1e}"
        )


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


def resampling(outputs: Sets, references: Sets, sources: list[str]) -> None:
    """1,000 resamples of all metrics beside scoring once."""
    names = [name for name, entry in CATALOGUE.items() if entry.default]

    def measure() -> list[tuple[Metric, Any]]:
        views = {
            "best": Outputs([texts[:1] for texts in outputs], references, sources),
            "samples": Outputs(outputs, references, sources),
            "subset": Outputs([texts[:SUBSET] for texts in outputs]),
        }
        made = [(CATALOGUE[name].make(Settings()), CATALOGUE[name].view) for name in names]
        return [(metric, metric.statistics(views[view])) for metric, view in made]

    measure()  # METEOR looks the synonyms up once
    measured, once = best(measure, 3)
    _, resampled = best(lambda: bootstrap(measured, seed=0), 3)
    _, tested = best(lambda: randomisation(measured, measured, seed=0), 1)
    print(f"all {len(names)} metrics without a neural model, {len(outputs):,} sources")
    print(
        f"  scoring {once:.2f} s, 1,000 resamples {resampled:.2f} s: {resampled / once:.2f} times "
        f"(goal: below 2); 10,000 trials of a test {tested:.2f} s"
    )


def memory(outputs: Sets) -> None:
    """The peak while twice as many outputs are scored, of one source and of many."""
    print("memory of self-BLEU, Div-4 and uniqueness (goal: twice the outputs, twice the memory)")
    texts = [text for row in outputs for text in row]
    for what, sets in (
        ("10 outputs per source", [outputs[: len(outputs) // k] for k in (4, 2, 1)]),
        ("one source", [[texts[: len(texts) // k]] for k in (4, 2, 1)]),
    ):
        peaks = []
        for rows in sets:
            tracemalloc.start()
            for metric in (SelfBleu(), Distinct("div-4", 4), Unique()):
                metric.statistics(Outputs(rows))
            peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
            tracemalloc.stop()
        sizes = [sum(map(len, rows)) for rows in sets]
        print(
            f"  {what}: "
            + ", ".join(f"{n:,} outputs {mb:.0f} MiB" for n, mb in zip(sizes, peaks, strict=True))
        )


def near(texts: list[str]) -> None:
    """Near-duplicates here and with datasketch's MinHash index, if that is installed."""
    left, right = texts[:2_000], texts[2_000:22_000]
    _, fast = best(lambda: list(NearDuplicates(right).among(left)), 2)
    print(f"near-duplicates of {len(left):,} texts among {len(right):,}: {fast:.2f} s", end="")
    try:
        datasketch: Any = importlib.import_module("datasketch")
    except ImportError:
        print()
        return

    def with_datasketch() -> int:
        index = datasketch.MinHashLSH(threshold=0.8, num_perm=64)
        sets = [[text[k : k + 5].encode() for k in range(len(text) - 4)] for text in right + left]
        hashes = list(datasketch.MinHash.generator(sets, num_perm=64))
        for key, one in enumerate(hashes[: len(right)]):
            index.insert(key, one)
        return sum(len(index.query(one)) for one in hashes[len(right) :])

    _, slow = best(with_datasketch, 1)
    print(f"; datasketch {slow:.2f} s: {slow / fast:.1f} times")


def best(function: Callable[[], T], times: int) -> tuple[T, float]:
    """The result, and the shortest of several times in seconds."""
    shortest = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        result = function()
        shortest = min(shortest, time.perf_counter() - start)
    return result, shortest


if __name__ == "__main__":
    main(sys.argv[1:])
