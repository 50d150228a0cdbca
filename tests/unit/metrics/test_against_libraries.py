"""Every metric against the library that defines it, on random texts, to 1e-9."""

import importlib.util
import itertools
import statistics
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nltk
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu, sentence_bleu
from nltk.translate.meteor_score import meteor_score

from polyphrase.metrics.bleu import Bleu, IBleu, MeanBleu, SelfBleu
from polyphrase.metrics.chrf import ChrF
from polyphrase.metrics.diversity import Compression, Distinct
from polyphrase.metrics.meteor import Meteor, find_wordnet
from polyphrase.metrics.metric import Metric
from polyphrase.metrics.ngrams import Outputs, Tokens

# Few words, so that n-grams repeat, meet and miss; some are hard to fold, stem or cut.
WORDS = ["a", "b", "A", "the", "cat", "cats", "kitty", "runs", "ran", ".", ",", "don't", "İ", "😀"]
MARKS = ["well-known", "3.14", "U.S.", "$5", "&quot;x&quot;", "x,y", "end.", "(a)", "\x85"]


def texts(least: int = 1, words: Sequence[str] = WORDS) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words), min_size=least, max_size=9).map(" ".join)


def sets(least: int = 1, words: Sequence[str] = WORDS) -> st.SearchStrategy[list[list[str]]]:
    """Texts for each of some sources."""
    return st.lists(st.lists(texts(1, words), min_size=least, max_size=4), min_size=1, max_size=5)


@st.composite
def scored(draw: st.DrawFn, outputs: int = 3, words: Sequence[str] = WORDS) -> Outputs:
    """Outputs with references and sources."""
    references = draw(sets(1, words))
    size = len(references)
    lists = st.lists(texts(1, words), min_size=1, max_size=outputs)
    return Outputs(
        draw(st.lists(lists, min_size=size, max_size=size)),
        references,
        draw(st.lists(texts(1, words), min_size=size, max_size=size)),
    )


def score(metric: Metric, outputs: Outputs) -> float:
    return float(metric.score(metric.statistics(outputs).sum(axis=0)))


def split(text: str) -> list[str]:
    return text.split()


def nltk_bleu(references: list[list[str]], outputs: list[str], order: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NLTK warns of orders without a match
        held = [list(map(split, texts)) for texts in references]
        return float(corpus_bleu(held, list(map(split, outputs)), weights=(1 / order,) * order))


def pooled(outputs: Outputs) -> tuple[list[list[str]], list[str]]:
    """The references beside each output."""
    assert outputs.references is not None
    pairs = [
        (references, text)
        for references, texts in zip(outputs.references, outputs.outputs, strict=True)
        for text in texts
    ]
    return [list(references) for references, _ in pairs], [text for _, text in pairs]


def others(outputs: Outputs) -> tuple[list[list[str]], list[str]]:
    """The other outputs for the same source beside each output."""
    pairs = [
        ([*texts[:k], *texts[k + 1 :]], text)
        for texts in outputs.outputs
        if len(texts) > 1
        for k, text in enumerate(texts)
    ]
    return [list(rest) for rest, _ in pairs], [text for _, text in pairs]


@given(outputs=scored(), order=st.integers(1, 5))
def test_bleu_is_nltks(outputs: Outputs, order: int) -> None:
    assert score(Bleu(order=order), outputs) == pytest.approx(
        nltk_bleu(*pooled(outputs), order), abs=1e-9
    )


@given(outputs=sets(2).map(Outputs), order=st.integers(1, 5))
def test_self_bleu_is_nltks(outputs: Outputs, order: int) -> None:
    assert score(SelfBleu(order=order), outputs) == pytest.approx(
        nltk_bleu(*others(outputs), order), abs=1e-9
    )


def test_self_bleu_of_one_output_does_not_count() -> None:
    outputs = Outputs([["a b"], ["a b c", "a b d"], ["c"]])
    metric = SelfBleu()
    assert score(metric, outputs) == pytest.approx(nltk_bleu(*others(outputs), 2), abs=1e-9)
    assert metric.skipped(metric.statistics(outputs)) == 2


@given(outputs=scored(), lower=st.booleans())
def test_lower_case_is_that_of_the_texts(outputs: Outputs, lower: bool) -> None:
    references, texts = pooled(outputs)
    folded = [[text.lower() for text in row] for row in references]
    expected = nltk_bleu(folded, [text.lower() for text in texts], 2)
    assert score(Bleu(tokens=Tokens(lowercase=True)), outputs) == pytest.approx(expected, abs=1e-9)


@given(outputs=scored())
def test_ibleu_is_a_difference_of_nltks(outputs: Outputs) -> None:
    assert outputs.sources is not None
    references, texts = pooled(outputs)
    of = [
        [source] for source, row in zip(outputs.sources, outputs.outputs, strict=True) for _ in row
    ]
    expected = 0.9 * nltk_bleu(references, texts, 2) - 0.1 * nltk_bleu(of, texts, 2)
    assert score(IBleu(Bleu()), outputs) == pytest.approx(expected, abs=1e-9)


@given(outputs=sets(2).map(Outputs))
def test_mean_self_bleu_is_the_mean_of_nltks(outputs: Outputs) -> None:
    references, texts = others(outputs)
    flat = iter(
        sentence_bleu(
            list(map(split, held)),
            split(text),
            weights=(0.5, 0.5),
            smoothing_function=SmoothingFunction(epsilon=1e-300).method1,
        )
        for held, text in zip(references, texts, strict=True)
    )
    means = [statistics.mean(itertools.islice(flat, len(row))) for row in outputs.outputs]
    metric = MeanBleu(SelfBleu(), "self-bleu-mean")
    assert score(metric, outputs) == pytest.approx(statistics.mean(means), abs=1e-9)


def streams(outputs: Outputs) -> tuple[list[str], list[list[str | None]]]:
    """Outputs and references as sacreBLEU takes them."""
    references, texts = pooled(outputs)
    return texts, [list(row) for row in itertools.zip_longest(*references)]


@given(outputs=scored(words=WORDS + MARKS), lower=st.booleans())
def test_sacrebleu(outputs: Outputs, lower: bool) -> None:
    theirs = sacrebleu.BLEU(lowercase=lower, force=True).corpus_score(*streams(outputs)).score
    ours = Bleu("sacrebleu", 4, Tokens("13a", lower), "exp")
    assert score(ours, outputs) == pytest.approx(theirs / 100, abs=1e-9)


@given(outputs=scored(outputs=1, words=WORDS + MARKS), lower=st.booleans())
def test_chrf(outputs: Outputs, lower: bool) -> None:
    theirs = sacrebleu.CHRF(lowercase=lower).corpus_score(*streams(outputs)).score
    assert score(ChrF(lowercase=lower), outputs) == pytest.approx(theirs / 100, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(outputs=scored())
def test_meteor(outputs: Outputs) -> None:
    references, texts = pooled(outputs)
    reader = find_wordnet()._reader  # NLTK's own reader, without our cache of synonyms
    theirs = iter(
        meteor_score(list(map(split, held)), split(text), wordnet=reader)
        for held, text in zip(references, texts, strict=True)
    )
    means = [statistics.mean(itertools.islice(theirs, len(row))) for row in outputs.outputs]
    assert score(Meteor(), outputs) == pytest.approx(statistics.mean(means), abs=1e-9)


def test_meteor_knows_synonyms() -> None:
    outputs = Outputs([["the car stopped"]], [["the auto stopped"]])
    assert score(Meteor(), outputs) > 0.9


@given(outputs=sets().map(Outputs), order=st.integers(1, 4))
def test_distinct_is_the_papers_script(outputs: Outputs, order: int) -> None:
    shares = []
    for row in outputs.outputs:
        grams = [gram for text in row for gram in nltk.ngrams(split(text), order)]
        if grams:
            shares.append(len(set(grams)) / len(grams))
    expected = statistics.mean(shares) if shares else float("nan")
    metric = Distinct("distinct", order)
    assert score(metric, outputs) == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert metric.skipped(metric.statistics(outputs)) == len(outputs) - len(shares)


def package(monkeypatch: pytest.MonkeyPatch, module: str) -> Callable[..., float]:
    """A function of the `diversity` package, without the rest of it, and without its rounding."""
    package = importlib.util.find_spec("diversity")
    assert package is not None, "pip install --no-deps diversity==0.3.1"
    assert package.submodule_search_locations is not None
    path = Path(package.submodule_search_locations[0]) / f"{module}.py"
    spec = importlib.util.spec_from_file_location(f"diversity_{module}", path)
    assert spec is not None
    assert spec.loader is not None
    loaded: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    monkeypatch.setattr(loaded, "round", lambda value, digits: value, raising=False)
    function: Callable[..., float] = getattr(
        loaded,
        {"compression": "compression_ratio", "ngram_diversity": "ngram_diversity_score"}[module],
    )
    return function


def test_compression_is_the_packages() -> None:
    with pytest.MonkeyPatch.context() as patch:
        theirs = package(patch, "compression")
        patch.setattr("gzip.time.time", lambda: 1.0)  # gzip writes the time into its header

        @settings(max_examples=50, deadline=None)
        @given(outputs=sets().map(Outputs))
        def check(outputs: Outputs) -> None:
            expected = statistics.mean(theirs(list(row)) for row in outputs.outputs)
            assert score(Compression(), outputs) == pytest.approx(expected, abs=1e-9)

        check()


def test_distinct_sums_to_the_packages_ngram_diversity() -> None:
    with pytest.MonkeyPatch.context() as patch:
        theirs = package(patch, "ngram_diversity")

        @given(rows=st.lists(st.lists(texts(4), min_size=1, max_size=1), min_size=1, max_size=5))
        def check(rows: list[list[str]]) -> None:
            ours = sum(score(Distinct("d", n), Outputs(rows)) for n in range(1, 5))
            assert ours == pytest.approx(statistics.mean(map(theirs, rows)), abs=1e-9)

        check()
