"""The protocol, the comparisons and the refusals of an evaluation."""

import random
from collections.abc import Sequence
from dataclasses import replace

import nltk
import numpy as np
import pytest
from nltk.translate.bleu_score import corpus_bleu

from polyphrase.errors import BadInput
from polyphrase.evaluation.evaluate import (
    CODE,
    COPY,
    TEXT,
    Protocol,
    Report,
    copying,
    evaluate,
)
from polyphrase.evaluation.predictions import Predictions, References
from polyphrase.metrics.bleu import Bleu, SelfBleu
from polyphrase.metrics.catalogue import CATALOGUE, Settings
from polyphrase.metrics.diversity import Distinct, Unique
from polyphrase.metrics.metric import Metric
from polyphrase.metrics.ngrams import Outputs

METRICS = ["bleu", "chrf", "copies", "avg-bleu", "self-bleu", "div-4", "unique"]
NEURAL = {"meaning", "avg-meaning", "perplexity"}  # tested with their models
ROWS = 12
SOURCES = tuple(f"the source number {k} says a thing" for k in range(ROWS))
REFERENCES = References("refs.tsv", tuple((f"source {k} says it",) for k in range(ROWS)), SOURCES)


def system(name: str = "a", samples: int = 10, words: str = "it again so") -> Predictions:
    candidates = tuple(
        tuple(
            f"source {k} says {' '.join(words.split()[: 1 + (k * j) % 3])} v{j % 4}"
            for j in range(samples)
        )
        for k in range(ROWS)
    )
    return Predictions(f"{name}.jsonl", candidates, SOURCES)


def value(metric: Metric, outputs: Outputs) -> float:
    return float(metric.score(metric.statistics(outputs).sum(axis=0)))


def scores(report: Report) -> dict[str, float]:
    return {name: score.value for name, score in report.systems[0].scores.items()}


def test_which_outputs_each_metric_sees() -> None:
    one = replace(system(), means=tuple(f"source {k} means it" for k in range(ROWS)))
    found = evaluate([one], REFERENCES, METRICS)
    held = REFERENCES.references
    expected = {
        "bleu": value(Bleu(), Outputs([[text] for text in one.means or ()], held)),
        "avg-bleu": value(Bleu(), Outputs(one.candidates, held)),
        "unique": value(Unique(), Outputs(one.candidates)),
    }
    assert scores(found).items() >= expected.items()
    assert found.systems[0].quality == "mean"
    assert "quality:mean" in found.systems[0].scores["bleu"].signature


def test_the_subset_is_drawn_with_the_recorded_seed() -> None:
    one = system()
    found = [scores(evaluate([one], REFERENCES, METRICS, Protocol(seed=s))) for s in (1, 1, 2)]
    assert found[0] == found[1]
    assert found[0]["self-bleu"] != found[2]["self-bleu"]
    assert found[0]["unique"] == found[2]["unique"]
    whole = scores(evaluate([one], REFERENCES, METRICS, Protocol(subset=10)))
    assert whole["self-bleu"] == value(SelfBleu(), Outputs(one.candidates))


def test_the_papers_code_takes_the_first_five() -> None:
    one = system()
    found = evaluate([one], REFERENCES, METRICS, CODE, Settings(order=4))
    five = Outputs([texts[:5] for texts in one.candidates])
    assert scores(found)["self-bleu"] == value(SelfBleu(order=4), five)
    assert scores(found)["div-4"] == value(Distinct("div-4", 4), five)
    assert (
        found.systems[0]
        .scores["self-bleu"]
        .signature.startswith(
            "self-bleu|order:4|smooth:none|tok:whitespace|case:mixed|samples:5of10|draw:first|boot:1000@"
        )
    )


def test_the_papers_code_scores_the_first_output_whatever_the_mean() -> None:
    one = replace(system(), means=tuple(f"source {k} means it" for k in range(ROWS)))
    settings = Settings(order=4)
    with_mean, without = (
        evaluate([s], REFERENCES, METRICS, CODE, settings) for s in (one, system())
    )
    assert scores(with_mean) == scores(without)
    assert with_mean.systems[0].quality == "first"
    assert "quality:first" in with_mean.systems[0].scores["bleu"].signature


def papers_scripts(outputs: Sequence[Sequence[str]], references: Sequence[str]) -> dict[str, float]:
    """`quality.py` and `diversity.py` of the paper's authors, on outputs as their lists."""
    first = [texts[0].split() for texts in outputs]
    held, hypotheses, shares = [], [], []
    for texts in outputs:
        five = list(texts[:5])
        grams = [gram for text in five for gram in nltk.ngrams(text.split(), 4)]
        shares.append(len(set(grams)) / len(grams))
        for j, text in enumerate(five):
            held.append([other.split() for other in five[:j] + five[j + 1 :]])
            hypotheses.append(text.split())
    return {
        "bleu": corpus_bleu([[text.split()] for text in references], first),
        "self-bleu": corpus_bleu(held, hypotheses),
        "div-4": float(np.mean(shares)),
        "unique": float(np.mean([len(set(texts)) / len(texts) for texts in outputs])),
    }


@pytest.mark.parametrize("seed", range(5))
def test_the_papers_code_gives_what_its_scripts_give(seed: int) -> None:
    draw = random.Random(seed)

    def text() -> str:
        return " ".join(draw.choices("abcd", k=draw.randint(4, 12)))

    outputs = tuple(tuple(text() for _ in range(10)) for _ in range(30))
    references = [text() for _ in outputs]
    found = evaluate(
        [Predictions("a.jsonl", outputs, means=("a b c d",) * 30)],
        References("refs", tuple((text,) for text in references)),
        ["bleu", "self-bleu", "div-4", "unique"],
        CODE,
        Settings(order=4),
    )
    assert scores(found) == pytest.approx(papers_scripts(outputs, references), abs=1e-9)


def test_every_score_has_a_signature_and_an_interval() -> None:
    found = evaluate([system()], REFERENCES)
    assert set(found.systems[0].scores) == {n for n, entry in CATALOGUE.items() if entry.default}
    for name, score in found.systems[0].scores.items():
        assert score.signature.startswith(f"{name}|")
        assert "|boot:1000@12345|version:" in score.signature
        assert score.low <= score.value + 1e-9
        assert score.value <= score.high + 1e-9
    assert (
        len({score.signature for score in found.systems[0].scores.values()}) == len(CATALOGUE) - 4
    )


def test_copying_is_in_every_report() -> None:
    found = evaluate([system()], REFERENCES, METRICS)
    copy = found.systems[-1]
    assert copy.name == COPY
    assert set(copy.scores) == {"bleu", "chrf", "copies"}
    assert copy.scores["copies"].value == 1.0
    assert copy.scores["bleu"] == copying(REFERENCES)["bleu"]


def test_systems_are_compared_with_the_first() -> None:
    worse = system("worse", words="nothing at all")
    found = evaluate([system(), system("same"), worse], REFERENCES, METRICS)
    assert [one.name for one in found.systems] == ["a", "same", "worse", COPY]
    p = {(one.system, one.metric): one for one in found.differences}
    assert p["same", "bleu"].p == 1.0
    assert p["same", "bleu"].difference == 0.0
    assert p["worse", "bleu"].p < 0.05
    assert p["worse", "bleu"].high < 0
    assert p["worse", "unique"].p == 1.0
    assert ("copy", "self-bleu") not in p


def test_a_model_swept_over_its_knob_has_a_frontier() -> None:
    sweep = [replace(system(f"gp-{k}", words=" ".join("abcdefgh"[k:])), model="gp") for k in (1, 2)]
    files = [system(f"nucleus-0.{k}", words=" ".join("abcdefgh"[k:])) for k in (8, 9)]
    found = evaluate([*sweep, *files, system("alone")], REFERENCES, METRICS)
    assert [one.model for one in found.frontiers] == ["gp", "nucleus"]
    one = found.systems[0].scores
    area = one["avg-bleu"].value * (1 - one["self-bleu"].value)
    assert found.frontiers[0].hypervolume >= area


def test_grouping_by_source() -> None:
    doubled = References(
        "refs.tsv",
        REFERENCES.references + tuple((f"other {k}",) for k in range(ROWS)),
        SOURCES + SOURCES,
    )
    by_row = replace(system(), candidates=system().candidates * 2, sources=SOURCES * 2)
    protocol = Protocol(group=True)
    found = [evaluate([one], doubled, METRICS, protocol) for one in (by_row, system())]
    assert scores(found[0]) == scores(found[1])
    both = [[f"source {k} says it", f"other {k}"] for k in range(ROWS)]
    first = [[texts[0]] for texts in system().candidates]
    assert scores(found[0])["bleu"] == value(Bleu(), Outputs(first, both))
    assert "refs:2@source" in found[0].systems[0].scores["bleu"].signature
    with pytest.raises(BadInput, match="score by source with --group"):
        evaluate([system()], doubled, METRICS)


def test_rows_of_one_source_are_drawn_together() -> None:
    one = evaluate([system()], REFERENCES, METRICS)
    again = References("refs.tsv", REFERENCES.references * 4, SOURCES * 4)
    four = replace(system(), candidates=system().candidates * 4, sources=SOURCES * 4)
    repeated = evaluate([four], again, METRICS, CODE)
    assert (repeated.rows, repeated.sources) == (4 * ROWS, ROWS)
    for name in ("bleu", "avg-bleu", "unique"):
        score, other = one.systems[0].scores[name], repeated.systems[0].scores[name]
        assert (other.value, other.low, other.high) == pytest.approx(
            (score.value, score.low, score.high), abs=1e-12
        )


def test_one_output_per_source_only_if_asked_for() -> None:
    single = system(samples=1)
    with pytest.raises(BadInput, match=r"source 1 \('the source number 0 .* 1 of the 10 outputs"):
        evaluate([single], REFERENCES)
    found = evaluate([single], REFERENCES, protocol=Protocol(samples=1))
    assert "self-bleu" not in found.systems[0].scores
    assert any("there is one output per source" in note for note in found.notes)
    with pytest.raises(BadInput, match="self-bleu cannot be had: there is one output"):
        evaluate([single], REFERENCES, ["self-bleu"], Protocol(samples=1))


def test_more_outputs_than_the_protocol_takes() -> None:
    found = evaluate([system(samples=12)], REFERENCES, METRICS)
    assert scores(found) == scores(evaluate([system()], REFERENCES, METRICS))
    assert found.notes[0] == "only the first 10 outputs for a source are scored"


def test_a_subset_of_more_than_there_is_is_said() -> None:
    found = evaluate([system()], REFERENCES, METRICS, Protocol(samples=3))
    assert "the subset is all 3 outputs, not 5" in found.notes
    assert "quality is that of the first output" in found.notes[-1]
    assert "|samples:3of3|" in found.systems[0].scores["self-bleu"].signature


def test_unknown_sources() -> None:
    alone = replace(REFERENCES, sources=None)
    anonymous = replace(system(), sources=None)
    found = evaluate([anonymous], alone)
    assert [one.name for one in found.systems] == ["a"]
    assert any("without ibleu, copies" in note for note in found.notes)
    with pytest.raises(BadInput, match="copies cannot be had: the sources are not known"):
        evaluate([anonymous], alone, ["copies"])
    assert evaluate([system()], alone, METRICS).systems[-1].name == COPY


def test_what_does_not_belong_together() -> None:
    short = replace(system(), candidates=system().candidates[1:], sources=SOURCES[1:])
    with pytest.raises(BadInput, match=r"outputs for 11 sources, refs.tsv has 12 rows"):
        evaluate([short], REFERENCES)
    moved = replace(system(), sources=(SOURCES[1], SOURCES[0], *SOURCES[2:]))
    with pytest.raises(BadInput, match="the same sources in another order: row 1 is 'the source"):
        evaluate([moved], REFERENCES)
    other = replace(system(), sources=(*SOURCES[:-1], "else"))
    with pytest.raises(BadInput, match="hold other sources: row 12 is 'else' in the outputs"):
        evaluate([other], REFERENCES)
    spaced = replace(system(), sources=tuple(source.replace(" ", "  ") for source in SOURCES))
    assert evaluate([spaced], REFERENCES, ["bleu"]).sources == ROWS


def test_unknown_metrics_and_protocols() -> None:
    with pytest.raises(BadInput, match="no metric is called 'blue'; known are bleu, bleu-lower"):
        evaluate([system()], REFERENCES, ["blue"])
    with pytest.raises(BadInput, match="at least 1 sample and a subset of at least 2"):
        evaluate([system()], REFERENCES, protocol=replace(TEXT, subset=1))


def test_names_that_are_not_different_are_paths() -> None:
    systems = [replace(system(), path=path) for path in ("x/a.jsonl", "y/a.jsonl.gz")]
    found = evaluate(systems, REFERENCES, ["bleu"])
    assert [one.name for one in found.systems[:2]] == ["x/a.jsonl", "y/a.jsonl.gz"]


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - NEURAL))
def test_every_metric_keeps_the_contract(name: str) -> None:
    entry = CATALOGUE[name]
    metric = entry.make(Settings())
    size = 1 if entry.view == "best" else 3
    outputs = Outputs(
        [list(texts[:size]) for texts in system().candidates], REFERENCES.references, SOURCES
    )
    statistics = metric.statistics(outputs)
    assert metric.name == name
    assert statistics.shape[0] == ROWS
    assert statistics.dtype == float
    one, whole = metric.score(statistics), metric.score(statistics.sum(axis=0))
    assert one.shape == (ROWS,)
    assert whole.shape == ()
    assert metric.score(statistics[None].sum(axis=1))[0] == pytest.approx(float(whole))
