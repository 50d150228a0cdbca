"""The door from Python: `polyphrase.load(...)` and what it gives."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import polyphrase
from polyphrase.api import Rewriter, Truncated, load
from polyphrase.decoding.settings import Search
from polyphrase.errors import BadInput
from polyphrase.text import normal_form

TEXTS = ["how do i learn music ?", "how do you see fish now ?", "what can they do ?", "tea"]


@pytest.fixture(scope="module")
def rewriter(tiny_model: Path) -> Rewriter:
    return polyphrase.load(tiny_model, device="cpu")


def test_lists_of_strings(rewriter: Rewriter) -> None:
    found = rewriter.generate(TEXTS, n=3)
    assert [len(texts) for texts in found] == [3] * 4
    assert all(isinstance(text, str) for texts in found for text in texts)
    assert found == rewriter.generate(TEXTS, n=3, spread=2.0, seed=0, search=rewriter.search())
    assert found != rewriter.generate(TEXTS, n=3, seed=1)


def test_a_sample_is_a_matter_of_its_text_seed_and_number(
    rewriter: Rewriter, tiny_model: Path
) -> None:
    """Not of the order of the texts, of what is beside it, of n, nor of the batches."""
    whole = rewriter.generate(TEXTS, n=7)
    assert rewriter.generate(TEXTS[::-1], n=7) == whole[::-1]
    assert rewriter.generate(TEXTS[2:3], n=7) == whole[2:3]
    assert rewriter.generate(TEXTS, n=4) == [texts[:4] for texts in whole]
    narrow = polyphrase.load(tiny_model, device="cpu", batch_tokens=1)
    assert narrow.generate(TEXTS, n=7) == whole
    sampled = Search(method="sample", max_length=12)
    words = rewriter.generate(TEXTS, n=5, search=sampled)
    assert narrow.generate(TEXTS[::-1], n=3, search=sampled) == [row[:3] for row in words[::-1]]


def test_texts_are_read_as_they_are_needed(tiny_model: Path) -> None:
    narrow = polyphrase.load(tiny_model, device="cpu", batch_tokens=1)
    read = []

    def endless() -> Iterator[str]:
        while True:
            read.append(1)
            yield TEXTS[len(read) % 4]

    found = narrow.rewrite(endless(), n=1)
    assert next(found).source == TEXTS[1]
    assert len(read) == narrow.window(1, narrow.search(1))


def test_distinct_rewrites_differ_and_say_something(rewriter: Rewriter) -> None:
    plain = next(rewriter.rewrite(TEXTS[1:2], n=60)).candidates
    assert any(not candidate.text for candidate in plain), "the model says nothing at times"
    item = next(rewriter.rewrite(TEXTS[1:2], n=12, distinct=True))
    known = {normal_form(candidate.text) for candidate in item.candidates}
    assert len(known) == len(item.candidates)
    assert not known & {"", normal_form(item.source)}
    assert all(candidate.finished for candidate in item.candidates)
    places = [(candidate.rank, candidate.sample) for candidate in item.candidates]
    assert places == sorted(places)
    # The same samples as without, the repetitions left out; then what else they hold.
    by_number = {candidate.sample: candidate for candidate in plain}
    first = [found for found in item.candidates if found.rank == 0]
    assert first
    assert all(by_number[found.sample] == found for found in first)
    said = {normal_form(candidate.text) for candidate in plain if candidate.finished}
    assert said - {"", normal_form(item.source)} >= {normal_form(found.text) for found in first}


def test_ten_different_rewrites_of_a_sentence_are_ten() -> None:
    """What `make demo` shows, from the embedded weights; in company too."""
    sentence = "How can I learn to play the guitar without a teacher?"
    rewriter = load(device="cpu", precision="float32")
    item = next(rewriter.rewrite([sentence], n=10, distinct=True))
    said = [normal_form(candidate.text) for candidate in item.candidates]
    assert len({*said, normal_form(sentence)}) == 11
    close = list(rewriter.rewrite([sentence, "Is coffee good for you?"], 5, 1.0, distinct=True))
    assert [len(one.candidates) for one in close] == [5, 5]
    assert any(candidate.rank for candidate in close[0].candidates)


@pytest.mark.parametrize(
    ("one", "other"), [("Tea, now!", "tea now"), ("ﬁsh", "FISH"), ("...", ""), ("a  b", "ab")]
)
def test_case_spacing_and_punctuation_are_no_difference(one: str, other: str) -> None:
    assert normal_form(one) == normal_form(other)
    assert normal_form("5 €") != normal_form("5 $")


def test_a_long_text_is_cut_with_a_warning_or_refused(rewriter: Rewriter) -> None:
    long = "how do " * 60
    with pytest.warns(Truncated, match="^2 texts were cut to the 64 tokens that "):
        found = list(rewriter.rewrite([long, TEXTS[0], long], n=1))
    assert [item.truncated for item in found] == [True, False, True]
    with pytest.raises(BadInput, match="longer than the 64 tokens"):
        rewriter.generate([long], n=1, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rewriter.generate(TEXTS, n=1, strict=True)


@pytest.mark.parametrize("n", [0, -3])
def test_n_is_at_least_one(rewriter: Rewriter, n: int) -> None:
    with pytest.raises(BadInput, match=f"n is {n}: ask for 1 rewrite or more"):
        rewriter.generate(TEXTS, n=n)


@pytest.mark.parametrize("spread", [-0.1, float("nan"), float("inf")])
def test_spread_is_finite_and_not_negative(rewriter: Rewriter, spread: float) -> None:
    with pytest.raises(BadInput, match=r"spread is .*: give 0"):
        rewriter.generate(TEXTS, spread=spread)


def test_refused_before_anything_runs(rewriter: Rewriter) -> None:
    """Not when the first result is asked for."""
    with pytest.raises(BadInput, match="4 outputs of one deterministic beam search of width 3"):
        rewriter.rewrite([], n=4, spread=0.0, search=Search(beams=3))
    with pytest.raises(BadInput, match="2 outputs of one deterministic greedy search of width 1"):
        rewriter.rewrite([], n=2, spread=0.0, search=Search(method="greedy"))
    assert list(rewriter.rewrite([], n=2, search=Search(method="greedy"))) == []


def test_an_empty_text_is_refused(rewriter: Rewriter) -> None:
    with pytest.raises(BadInput, match="text 2 is empty"):
        rewriter.generate(["tea", " "], n=1)


def test_a_mean_has_as_many_beams_as_rewrites_are_wanted(rewriter: Rewriter) -> None:
    assert rewriter.search(20, 0.0).beams == 20
    assert rewriter.search(20).beams == 3  # saved with the model; each sample gives one
    assert rewriter.search(7, 0.0, method="diverse-beam", groups=5).beams == 10
    assert len(set(rewriter.generate(TEXTS[:1], n=6, spread=0.0)[0])) == 6


def test_what_is_saved_loads_again(rewriter: Rewriter, tmp_path: Path) -> None:
    rewriter.save(tmp_path / "copy")
    copy = polyphrase.load(tmp_path / "copy", device="cpu")
    assert copy.spread == rewriter.spread == 2.0
    assert copy.search() == rewriter.search()
    assert copy.generate(TEXTS, n=3) == rewriter.generate(TEXTS, n=3)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ("Hi you", "texts is one string: give a list of texts"),
        (["a", 3], "text 2 is 3: give strings"),
        (["a", "b", " "], "text 3 is empty"),
    ],
)
def test_what_cannot_be_rewritten_is_named_before_anything_is(
    rewriter: Rewriter, texts: list[str], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        rewriter.rewrite(texts, n=1)
