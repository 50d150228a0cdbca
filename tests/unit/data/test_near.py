"""MinHash against the Jaccard index of every pair."""

import random

from polyphrase.data.near import SHINGLE, NearDuplicates
from polyphrase.text import normal_form


def jaccard(one: str, other: str) -> float:
    def grams(text: str) -> set[str]:
        form = normal_form(text)
        return {form[at : at + SHINGLE] for at in range(max(1, len(form) - SHINGLE + 1))}

    return len(grams(one) & grams(other)) / len(grams(one) | grams(other))


def variants(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    words = [f"{a}{b}{c}" for a in "bdkl" for b in "aeio" for c in "mnrt"]
    texts = []
    for _ in range(count):
        text = draw.choices(words, k=14)
        for _ in range(4):
            changed = list(text)
            for at in draw.sample(range(len(changed)), draw.randint(0, 2)):
                changed[at] = draw.choice(words)
            texts.append(" ".join(changed))
    return texts


def test_all_near_duplicates_and_only_they_are_found() -> None:
    texts = variants(100, seed=1)
    left, right = texts[::2], texts[1::2]
    expected = {
        (i, j)
        for i, one in enumerate(left)
        for j, other in enumerate(right)
        if jaccard(one, other) >= 0.8
    }
    assert len(expected) > 50
    assert set(NearDuplicates(right, 0.8).among(left)) == expected


def test_case_punctuation_and_spacing_do_not_count() -> None:
    here = NearDuplicates(["hello world", "A.", "...", "b"], 1.0)
    assert list(here.among(["Hello , World !", "a", "", "😀"])) == [(0, 0), (1, 1), (2, 2)]


def test_every_pair_comes_once() -> None:
    here = NearDuplicates(["the same text"] * 3)
    assert list(here.among(["the same text"])) == [(0, 0), (0, 1), (0, 2)]


def test_nothing_to_compare() -> None:
    assert list(NearDuplicates(["a text"]).among([])) == []
    assert list(NearDuplicates([]).among(["a text"])) == []
