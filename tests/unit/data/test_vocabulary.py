"""Words, the vocabulary, and ids that belong to one source."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyphrase.data.codec import IGNORED
from polyphrase.data.vocabulary import END, PAD, UNKNOWN, Vocabulary, VocabularyCodec
from polyphrase.data.words import JOINER, detokenise, tokenise
from polyphrase.errors import BadInput

TEXTS = ["the cat sat on the mat .", "the dog sat"]


def codec(size: int = 9, **options: bool) -> VocabularyCodec:
    return VocabularyCodec(Vocabulary.build(TEXTS, size), **options)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The cat sat.", ["The", "cat", "sat", "￭."]),
        ('"Hi," she said', ['"￭', "Hi", "￭,", '￭"', "she", "said"]),
        ("don't, it's", ["don", "￭'t", "￭,", "it", "￭'s"]),
        ("a well-known U.S. (tax)", ["a", "well", "￭-￭", "known", "U.S.", "(￭", "tax", "￭)"]),
        ("$1,000.50 at 10:30 ...", ["$￭", "1,000.50", "at", "10:30", "..."]),
        ("@user #tag https://t.co/a?b=c", ["@user", "#tag", "https://t.co/a?b=c"]),
        ("already , spaced .", ["already", ",", "spaced", "."]),
    ],
)
def test_words_and_marks(text: str, tokens: list[str]) -> None:
    assert tokenise(text) == tokens
    assert detokenise(tokens) == text


@given(st.text())
def test_text_comes_back_with_single_spaces(text: str) -> None:
    expected = " ".join(text.replace(JOINER, "■").split())
    assert detokenise(tokenise(text)) == expected


@given(st.lists(st.sampled_from(["don't", "(", ")", '"', ",", "a-b", "U.S.", "'s", "7", "é", "—"])))
def test_marks_and_words_in_any_order_come_back(parts: list[str]) -> None:
    for text in ("".join(parts), " ".join(parts)):
        assert detokenise(tokenise(text)) == text


def test_no_text_makes_a_special_word() -> None:
    words = {word for text in ("<pad> <s> </s>", "<unk>") for word in tokenise(text)}
    assert words.isdisjoint(Vocabulary([]).words)


def test_vocabulary_is_capped_and_ranked() -> None:
    vocabulary = Vocabulary.build(TEXTS, 7)
    assert len(vocabulary) == 7
    assert vocabulary.words[4:] == ["the", "sat", "."]


def test_lower_casing_belongs_to_the_vocabulary(tmp_path: Path) -> None:
    Vocabulary.build(["The THE cat"], lowercase=True).save(tmp_path)
    again = Vocabulary.load(tmp_path)
    assert again.words[4:] == ["the", "cat"]
    assert again.tokenise("A Cat") == ["a", "cat"]


def test_damaged_or_missing_vocabulary_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has no vocabulary\.json"):
        Vocabulary.load(tmp_path)
    (tmp_path / "vocabulary.json").write_text('{"words": [')
    with pytest.raises(BadInput, match="damaged"):
        Vocabulary.load(tmp_path)


def test_unknown_words_of_a_source_have_ids_of_their_own() -> None:
    words = codec(8)
    known = len(words.vocabulary)
    sources = words.encode(["the zebra saw the zebra and okapi", "okapi"])
    ids, mask = sources.tensors["input_ids"], sources.tensors["attention_mask"]
    # the, zebra, saw, the, zebra, and, okapi: the first unknown word has the id V exactly.
    the = words.vocabulary.id("the")
    assert ids[0].tolist() == [the, known, known + 1, the, known, known + 2, known + 3]
    assert ids[1].tolist() == [known] + [PAD] * 6
    assert mask.sum(1).tolist() == [7, 1]
    assert sources.private == [["zebra", "saw", "and", "okapi"], ["okapi"]]


def test_target_words_are_known_or_in_the_source_or_unknown() -> None:
    words = codec(8)
    sources = words.encode(["the zebra", "the okapi sat"])
    labels = words.labels(["zebra okapi", "sat okapi zebra"], sources)
    known = len(words.vocabulary)
    assert labels[0].tolist() == [known, UNKNOWN, END, IGNORED]
    assert labels[1].tolist() == [words.vocabulary.id("sat"), known, UNKNOWN, END]
    assert words.decode([known, END, 5], sources, 0) == "zebra"
    assert words.decode([known, END], sources, 1) == "okapi"


def test_without_copying_nothing_exceeds_the_vocabulary() -> None:
    words = codec(8, copying=False)
    sources = words.encode(["the zebra"])
    assert int(sources.tensors["input_ids"].max()) < len(words.vocabulary)
    assert int(words.labels(["zebra"], sources)[0, 0]) == UNKNOWN


@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=3))
def test_a_source_can_be_spelled_from_its_own_ids(texts: list[str]) -> None:
    words = codec(8)
    sources = words.encode(texts)
    for row, text in enumerate(texts):
        labels = words.labels(texts, sources)[row]
        real = labels[labels != IGNORED].tolist()
        assert UNKNOWN not in real
        assert words.decode(real, sources, row) == detokenise(tokenise(text))


def test_long_sources_are_cut_and_counted() -> None:
    words = VocabularyCodec(Vocabulary.build(TEXTS), max_length=3, max_target_length=3)
    sources = words.encode(["the cat sat on", "the cat sat"])
    assert sources.truncated == [True, False]
    assert sources.tensors["input_ids"].shape == (2, 3)
    labels = words.labels(["the cat sat on", "the"], sources)
    assert labels.shape == (2, 3)
    assert labels[0, -1] == END
    assert words.length("the cat sat on the mat") == 3


def test_an_empty_source_is_one_unknown_word() -> None:
    sources = codec().encode(["", "the"])
    assert sources.tensors["input_ids"][0].tolist() == [UNKNOWN]
    assert torch.equal(sources.tensors["attention_mask"], torch.ones(2, 1, dtype=torch.long))
