"""Scores of systems under one protocol, with intervals, and tests of their differences.

The paper's protocol: quality is that of one output per source, from the posterior's mean; self-BLEU
and Div-4 are taken over 5 of the 10 samples, drawn at random with a recorded seed; uniqueness and
avg-BLEU over all 10. Every score carries these settings in its signature.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from .. import __version__
from ..errors import BadInput
from ..metrics.catalogue import CATALOGUE, Entry, Settings, View
from ..metrics.metric import Metric, Score, write_signature
from ..metrics.ngrams import Floats, Ints, Outputs
from ..metrics.significance import RESAMPLES, bootstrap, interval, randomisation
from .frontier import frontier, hypervolume
from .predictions import Predictions, References, by_source, check_rows, check_samples

Quality = Literal["mean", "first"]
"""What stands for a system's quality: the output of the posterior's mean or the first one."""

COPY = "copy"
"""The name of the system that repeats the source: the score to beat in every table."""


@dataclass(frozen=True)
class Protocol:
    """Which of the outputs are scored; the defaults are the paper's text."""

    samples: int = 10
    """Outputs per source that count as its samples: the first ones."""
    subset: int = 5
    """How many of them self-BLEU and Div-4 look at."""
    draw: Literal["random", "first"] = "random"
    """How these are chosen: at random, or the first ones, as in the paper's code."""
    quality: Quality = "mean"
    """What stands for quality: the output of the mean where there is one, or always the first."""
    seed: int = 12345
    """Of the draw, of the bootstrap and of the test."""
    group: bool = False
    """Whether a source is scored once, against the references of all its rows."""


TEXT = Protocol()
CODE = Protocol(draw="first", quality="first")
"""What the paper says, and what its scripts do; these also take BLEU and self-BLEU of order 4."""
PAPER = Settings()


@dataclass(frozen=True)
class System:
    """The scores of one system."""

    name: str
    scores: Mapping[str, Score]
    quality: Quality
    model: str | None = None
    spread: float | None = None


@dataclass(frozen=True)
class Difference:
    """How one score of a system differs from that of the baseline, the first system."""

    system: str
    metric: str
    difference: float
    low: float
    """Lower end of the 95% interval of the paired bootstrap."""
    high: float
    p: float
    """By approximate randomisation, two-sided."""


@dataclass(frozen=True)
class Frontier:
    """What a model reaches over the settings of its knob."""

    model: str
    points: tuple[tuple[float, float], ...]
    """(avg-BLEU, 1 - self-BLEU), the settings that no other one beats in both."""
    hypervolume: float


@dataclass(frozen=True)
class Report:
    """Everything that an evaluation found."""

    protocol: Protocol
    rows: int
    sources: int
    """Different sources: what the bootstrap and the tests draw, with all their rows."""
    systems: tuple[System, ...]
    differences: tuple[Difference, ...]
    frontiers: tuple[Frontier, ...]
    notes: tuple[str, ...]
    """What was left out or taken otherwise than usual."""


def evaluate(
    predictions: Sequence[Predictions],
    references: References,
    metrics: Sequence[str] | None = None,
    protocol: Protocol = TEXT,
    settings: Settings = PAPER,
) -> Report:
    """Score systems on the same sources, and compare each with the first.

    Args:
        predictions: the outputs of the systems.
        references: what they are scored against, row by row as the outputs.
        metrics: names in the catalogue; None for those that need no neural model.
        protocol: which outputs are scored.
        settings: of the metrics.

    Raises:
        BadInput: when outputs and references do not belong together row by row, or a source has
            fewer outputs than the protocol needs.
    """
    notes: list[str] = []
    if protocol.group:
        rows, references = references, references.grouped()
        predictions = [by_source(one, rows, references) for one in predictions]
        notes.append(f"{len(rows):,} rows are scored as {len(references):,} sources")
    if references.sources is None:
        known = next((one.sources for one in predictions if one.sources is not None), None)
        references = replace(references, sources=known)
    for one in predictions:
        check_rows(one, references)
        check_samples(one, protocol.samples)
    if any(len(texts) > protocol.samples for one in predictions for texts in one.candidates):
        notes.append(f"only the first {protocol.samples} outputs for a source are scored")
    chosen = _choose(metrics, references, protocol, notes)
    if protocol.subset > protocol.samples > 1:
        notes.append(f"the subset is all {protocol.samples} outputs, not {protocol.subset}")
    of_row = _sources_of_rows(references)
    measured = []
    for name, one in zip(_names(predictions), predictions, strict=True):
        quality: Quality = "first" if one.means is None else protocol.quality
        views = _views(one, references, protocol, quality)
        signatures = _signatures(references, protocol, quality)
        found = _measure(views, chosen, settings, signatures, of_row, protocol.seed)
        measured.append((System(name, found.scores, quality, one.model, one.spread), found))
    if protocol.quality == "mean":
        without = [
            name
            for name, one in zip(_names(predictions), predictions, strict=True)
            if one.means is None
        ]
        if without:
            notes.append(
                f"no output of the posterior's mean (generate --mean) in {', '.join(without)}: "
                "quality is that of the first output"
            )
    if references.sources is not None:
        best = {name: entry for name, entry in chosen.items() if entry.view == "best"}
        found = _measure_copy(references, best, protocol, settings)
        measured.append((System(COPY, found.scores, "first"), found))
    systems = [system for system, _ in measured]
    baseline = measured[0][1]
    return Report(
        protocol=protocol,
        rows=len(references),
        sources=int(of_row.max()) + 1,
        systems=tuple(systems),
        differences=tuple(
            difference
            for system, found in measured[1:]
            for difference in _compare(system.name, baseline, found, protocol.seed)
        ),
        frontiers=tuple(_frontiers(systems)),
        notes=tuple(notes),
    )


def copying(
    references: References,
    metrics: Sequence[str] = ("bleu",),
    protocol: Protocol = TEXT,
    settings: Settings = PAPER,
) -> Mapping[str, Score]:
    """What the system that repeats the source scores in metrics of quality."""
    if protocol.group:
        references = references.grouped()
    chosen = {name: CATALOGUE[name] for name in metrics}
    return _measure_copy(references, chosen, protocol, settings).scores


def _choose(
    metrics: Sequence[str] | None, references: References, protocol: Protocol, notes: list[str]
) -> dict[str, Entry]:
    """The metrics that are asked for and can be had; what cannot is an error only if named."""
    for name in metrics or ():
        if name not in CATALOGUE:
            raise BadInput(f"no metric is called {name!r}; known are {', '.join(CATALOGUE)}")
    if protocol.samples < 1 or protocol.subset < 2:
        raise BadInput("a protocol needs at least 1 sample and a subset of at least 2")
    chosen = {
        name: entry
        for name, entry in CATALOGUE.items()
        if (entry.default if metrics is None else name in metrics)
    }
    left_out: dict[str, str] = {}
    for name, entry in chosen.items():
        if "sources" in entry.needs and references.sources is None:
            left_out[name] = "the sources are not known: give them with --sources"
        elif entry.view != "best" and protocol.samples == 1:
            left_out[name] = "there is one output per source"
    for name, reason in left_out.items():
        if metrics is not None:
            raise BadInput(f"{name} cannot be had: {reason}")
    for reason in dict.fromkeys(left_out.values()):
        names = ", ".join(name for name in left_out if left_out[name] == reason)
        notes.append(f"without {names}: {reason}")
    return {name: entry for name, entry in chosen.items() if name not in left_out}


def _views(
    one: Predictions, references: References, protocol: Protocol, quality: Quality
) -> dict[View, Outputs]:
    """The outputs as the metrics look at them."""
    samples = [texts[: protocol.samples] for texts in one.candidates]
    best = (one.means or ()) if quality == "mean" else [texts[0] for texts in samples]
    size = min(protocol.subset, protocol.samples)
    if protocol.draw == "random":
        random = np.random.default_rng(protocol.seed)
        order = random.random((len(samples), protocol.samples)).argsort(axis=1)
        drawn = np.sort(order[:, :size], axis=1).tolist()
    else:
        drawn = [list(range(size))] * len(samples)
    subset = [[texts[k] for k in ks] for texts, ks in zip(samples, drawn, strict=True)]
    return {
        "best": _outputs([[text] for text in best], references),
        "samples": _outputs(samples, references),
        "subset": Outputs(subset),
    }


def _outputs(texts: Sequence[Sequence[str]], references: References) -> Outputs:
    return Outputs(texts, references.references, references.sources)


@dataclass(frozen=True)
class _Measurement:
    """What the scores and the comparisons of one system are made of, by the name of the metric."""

    statistics: Mapping[str, tuple[Metric, Floats]]
    """Summed over the rows of a source: rows that share it are not drawn as if they were apart."""
    resampled: Mapping[str, Floats]
    scores: Mapping[str, Score]


def _measure(
    views: Mapping[View, Outputs],
    chosen: Mapping[str, Entry],
    settings: Settings,
    signatures: Mapping[View, Mapping[str, str]],
    of_row: Ints,
    seed: int,
) -> _Measurement:
    statistics: dict[str, tuple[Metric, Floats]] = {}
    skipped = {}
    for name, entry in chosen.items():
        metric = entry.make(settings)
        by_row = metric.statistics(views[entry.view])
        skipped[name] = metric.skipped(by_row)
        statistics[name] = (metric, _sum_by(of_row, by_row))
    scores = {}
    resampled = dict(zip(statistics, bootstrap(list(statistics.values()), seed), strict=True))
    for name, (metric, values) in statistics.items():
        low, high = interval(resampled[name])
        protocol = dict(signatures[chosen[name].view])
        if "references" not in chosen[name].needs:
            protocol.pop("refs", None)
        scores[name] = Score(
            name=name,
            value=float(metric.score(values.sum(axis=0))),
            low=low,
            high=high,
            signature=write_signature(metric, protocol),
            higher_is_better=metric.higher_is_better,
            rows=len(of_row),
            skipped=skipped[name],
        )
    return _Measurement(statistics, resampled, scores)


def _measure_copy(
    references: References, chosen: Mapping[str, Entry], protocol: Protocol, settings: Settings
) -> _Measurement:
    copies = _outputs([[source] for source in references.sources or ()], references)
    signatures = _signatures(references, protocol, "first")
    of_row = _sources_of_rows(references)
    return _measure({"best": copies}, chosen, settings, signatures, of_row, protocol.seed)


def _sources_of_rows(references: References) -> Ints:
    """The number of each row's source, equal for rows that share it."""
    rows = np.arange(len(references))
    if references.sources is None:
        return rows
    first: dict[str, int] = {}
    return np.array([first.setdefault(text, len(first)) for text in references.sources])


def _sum_by(groups: Ints, values: Floats) -> Floats:
    """The sums of the rows of each group."""
    return np.stack([np.bincount(groups, weights=column) for column in values.T], axis=1)


def _signatures(
    references: References, protocol: Protocol, quality: Quality
) -> dict[View, dict[str, str]]:
    """What the protocol adds to the signature of a metric."""
    counts = sorted({len(texts) for texts in references.references})
    refs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
    refs += "@source" if protocol.group else ""
    common = {
        "boot": f"{RESAMPLES}@{protocol.seed}",
        "version": __version__,
    }
    samples = str(protocol.samples)
    subset = f"{min(protocol.subset, protocol.samples)}of{samples}"
    drawn = f"random@{protocol.seed}" if protocol.draw == "random" else "first"
    return {
        "best": {"refs": refs, "quality": quality, **common},
        "samples": {"refs": refs, "samples": samples, **common},
        "subset": {"samples": subset, "draw": drawn, **common},
    }


def _compare(
    name: str, baseline: _Measurement, other: _Measurement, seed: int
) -> Iterator[Difference]:
    shared = [metric for metric in baseline.scores if metric in other.scores]
    p_values = randomisation(
        [baseline.statistics[metric] for metric in shared],
        [other.statistics[metric] for metric in shared],
        seed,
    )
    for metric, p in zip(shared, p_values, strict=True):
        low, high = interval(other.resampled[metric] - baseline.resampled[metric])
        value = other.scores[metric].value - baseline.scores[metric].value
        yield Difference(name, metric, value, low, high, p)


def _frontiers(systems: Sequence[System]) -> Iterator[Frontier]:
    """One for each model of which several settings were scored."""
    points = defaultdict(list)
    for system in systems:
        if {"avg-bleu", "self-bleu"} <= set(system.scores):
            quality, sameness = (system.scores[name].value for name in ("avg-bleu", "self-bleu"))
            points[system.model or _KNOB.sub("", system.name)].append((quality, 1 - sameness))
    for model, reached in points.items():
        if len(reached) > 1:
            yield Frontier(model, tuple(frontier(reached)), hypervolume(reached))


_KNOB = re.compile(r"[-_=.@]?\d[\d.]*$")
"""The setting of a knob at the end of a file name: `nucleus-0.9` is `nucleus` at 0.9."""


def _names(predictions: Sequence[Predictions]) -> list[str]:
    """File names without folder and ending; whole paths where these are not different."""
    names = [_ENDING.sub("", Path(one.path).name) for one in predictions]
    if len(set(names)) < len(names) or COPY in names:
        return [one.path for one in predictions]
    return names


_ENDING = re.compile(r"\.(jsonl|ndjson|txt)?(\.gz)?$")
