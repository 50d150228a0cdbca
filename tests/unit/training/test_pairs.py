"""Pairs as a run reads them: none empty, none cut without a word."""

from pathlib import Path

import pytest

from polyphrase.backbones.backbone import load_tokenizer
from polyphrase.data.codec import Codec, TokenizerCodec
from polyphrase.data.vocabulary import Vocabulary, VocabularyCodec
from polyphrase.errors import BadInput, PolyphraseWarning
from polyphrase.training.pairs import measure, read_pairs, tell_cut


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.tsv", "i see\tyou see\n\tyou\n", "a.tsv, line 2: the source is empty"),
        ("a.tsv", "source\ttarget\ni\tyou\ni\t \n", "a.tsv, line 3: the target is empty"),
        ("a.jsonl", '["i", "you"]\n["i", "", "you"]\n', "a.jsonl, line 2: the target is empty"),
    ],
)
def test_an_empty_text_is_refused_with_its_line(
    tmp_path: Path, name: str, content: str, sentence: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=f"{sentence}; remove the line or write one$"):
        read_pairs(str(tmp_path / name))


def test_a_target_for_each_reference(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("i\tyou\twe\n")
    assert read_pairs(str(tmp_path / "a.tsv")) == [("i", "you"), ("i", "we")]


def test_what_is_cut_is_counted(tiny_backbone: Path) -> None:
    """Pieces and words: a target of as many words as are read loses its last to the end."""
    texts = ["tea", "i like tea", "i like tea now"]
    pairs = [(source, target) for source in texts for target in texts]
    pieces = TokenizerCodec(load_tokenizer(str(tiny_backbone)), 4, 4)
    lengths, cut = measure(pieces, pairs)
    assert cut == (3, 3)
    words: Codec = VocabularyCodec(Vocabulary(["i", "like", "tea"]), 3)
    assert lengths == [(pieces.length(source), pieces.length(target)) for source, target in pairs]
    assert measure(words, pairs)[1] == (3, 6)


def test_one_line_says_what_was_cut() -> None:
    with pytest.warns(PolyphraseWarning) as told:
        tell_cut((16, 1), 128, 128, strict=False)
    assert [str(warning.message) for warning in told] == [
        "16 sources and 1 target were cut to 128 tokens: raise --max-length"
    ]
    with pytest.warns(PolyphraseWarning, match=r"^1 target was cut to 64 tokens, all that the mod"):
        tell_cut((0, 1), 64, 128, strict=False)
    with pytest.raises(BadInput, match=r"^2 sources would be cut to 128 tokens: raise --max-len"):
        tell_cut((2, 0), 128, 128, strict=True)
    tell_cut((0, 0), 128, 128, strict=True)
