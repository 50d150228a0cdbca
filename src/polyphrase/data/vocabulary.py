"""A word vocabulary, and the codec that points at the words it does not hold."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..errors import BadInput
from ..files import write_text
from .codec import IGNORED, Sources
from .words import detokenise, tokenise

FILE = "vocabulary.json"
LONGEST = 128
"""The words of a source that are read, unless another number is given."""
PAD, UNKNOWN, START, END = range(4)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")


class Vocabulary:
    """The words that a model has rows for, the special ones first.

    Args:
        words: all words in the order of their ids, without the special ones.
        lowercase: whether texts are lower-cased before they are cut into words.
    """

    def __init__(self, words: Sequence[str], lowercase: bool = False) -> None:
        self.words = [*SPECIAL, *words]
        self.lowercase = lowercase
        self._ids = {word: number for number, word in enumerate(self.words)}

    @classmethod
    def build(
        cls, texts: Iterable[str], size: int = 20_000, lowercase: bool = False
    ) -> "Vocabulary":
        """The most frequent words, at most `size` with the special ones; ties by spelling."""
        counts = Counter(token for text in texts for token in tokenise(text, lowercase))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(ranked[: size - len(SPECIAL)], lowercase)

    def __len__(self) -> int:
        return len(self.words)

    def tokenise(self, text: str) -> list[str]:
        """The words of a text, known or not."""
        return tokenise(text, self.lowercase)

    def id(self, word: str) -> int:
        """The number of a word; that of the unknown word when it has none of its own."""
        return self._ids.get(word, UNKNOWN)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def save(self, folder: str | Path) -> None:
        """Write `vocabulary.json`."""
        content = {"lowercase": self.lowercase, "words": self.words[len(SPECIAL) :]}
        write_text(Path(folder) / FILE, json.dumps(content, ensure_ascii=False, indent=0))

    @classmethod
    def load(cls, folder: str | Path) -> "Vocabulary":
        """Read `vocabulary.json`."""
        path = Path(folder) / FILE
        if not path.is_file():
            raise BadInput(f"{folder} has no {FILE}: copy it from where the model was trained")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(content["words"], content["lowercase"])
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path} is damaged: copy or train the model again") from None


class VocabularyCodec:
    """Words as a `Codec`; with `copying`, the unknown words of a source extend its vocabulary.

    With V words known, the i-th different unknown word of a source has the id V + i in that source
    and in its target. A target's unknown word that its source does not hold is `<unk>`.

    Args:
        vocabulary: the known words.
        max_length: the longest source, in words; what is beyond is cut.
        max_target_length: the longest target in training, its end included; that of sources unless
            given.
        copying: whether unknown words of the source have ids of their own.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        max_length: int | None = None,
        max_target_length: int | None = None,
        copying: bool = True,
    ) -> None:
        self.vocabulary = vocabulary
        self.copying = copying
        self._max_length = max_length or LONGEST
        self._max_target_length = max_target_length or self._max_length

    @property
    def max_length(self) -> int:
        """The longest source, in words."""
        return self._max_length

    def encode(self, texts: Sequence[str]) -> Sources:
        """Sources of a batch, padded to the longest: see `Codec.encode`."""
        rows: list[list[int]] = []
        private: list[list[str]] = []
        truncated = []
        for text in texts:
            words = self.vocabulary.tokenise(text)
            truncated.append(len(words) > self._max_length)
            words = words[: self._max_length]
            unknown = [word for word in words if word not in self.vocabulary]
            own = list(dict.fromkeys(unknown)) if self.copying else []
            rows.append(self._ids(words, own) or [UNKNOWN])
            private.append(own)
        input_ids = torch.full((len(rows), max(len(row) for row in rows)), PAD)
        mask = torch.zeros_like(input_ids)
        for number, row in enumerate(rows):
            input_ids[number, : len(row)] = torch.tensor(row)
            mask[number, : len(row)] = 1
        return Sources({"input_ids": input_ids, "attention_mask": mask}, truncated, private)

    def labels(self, texts: Sequence[str], sources: Sources) -> Tensor:
        """Targets of a batch: see `Codec.labels`."""
        rows = []
        for text, own in zip(texts, sources.private, strict=True):
            words = self.vocabulary.tokenise(text)[: self._max_target_length - 1]
            rows.append([*self._ids(words, own), END])
        labels = torch.full((len(rows), max(len(row) for row in rows)), IGNORED)
        for number, row in enumerate(rows):
            labels[number, : len(row)] = torch.tensor(row)
        return labels

    def pairs(self, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Tensor]:
        """A training batch: see `Codec.pairs`."""
        encoded = self.encode(sources)
        return {**encoded.tensors, "labels": self.labels(targets, encoded)}

    def decode(self, tokens: Sequence[int], sources: Sources, row: int) -> str:
        """The text up to the end token: see `Codec.decode`."""
        known = len(self.vocabulary)
        words = []
        for token in tokens:
            if token == END:
                break
            if token >= known:
                words.append(sources.private[row][token - known])
            elif token not in (PAD, START):
                words.append(self.vocabulary.words[token])
        return detokenise(words)

    def length(self, text: str) -> int:
        """How many words a source has."""
        return min(self._max_length, len(self.vocabulary.tokenise(text)))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the vocabulary."""
        self.vocabulary.save(folder)

    def _ids(self, words: Sequence[str], own: Sequence[str]) -> list[int]:
        place = {word: len(self.vocabulary) + number for number, word in enumerate(own)}
        return [place.get(word, self.vocabulary.id(word)) for word in words]
