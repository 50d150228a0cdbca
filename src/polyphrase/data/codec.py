"""Text to tensors and back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

IGNORED = -100
"""The label of a position that is padding: it has no loss."""


@dataclass(frozen=True)
class Sources:
    """A batch of encoded sources.

    Attributes:
        tensors: `input_ids` and `attention_mask`, `[B, N]`, and what else a system reads.
        truncated: which sources were longer than the model reads.
        private: for each source, the words that only it knows (a pointer-generator's
            out-of-vocabulary words); empty for closed vocabularies.
    """

    tensors: dict[str, Tensor]
    truncated: list[bool]
    private: list[list[str]] = field(default_factory=list)


class Codec(Protocol):
    """The vocabulary of a system: what stands between strings and tensors."""

    @property
    def max_length(self) -> int:
        """The longest source, in tokens."""

    def encode(self, texts: Sequence[str]) -> Sources:
        """Sources of a batch, padded to the longest."""

    def labels(self, texts: Sequence[str], sources: Sources) -> Tensor:
        """Targets of a batch, `[B, T]`, the end token included, padding marked `IGNORED`."""

    def pairs(self, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Tensor]:
        """A training batch: the tensors of the sources, and `labels`."""

    def decode(self, tokens: Sequence[int], sources: Sources, row: int) -> str:
        """The text of one output of the source in `row`."""

    def length(self, text: str) -> int:
        """How many tokens a source has, to sort and group by."""

    def save_pretrained(self, folder: str | Path) -> Any:
        """Write what loads it again."""


class TokenizerCodec:
    """A Hugging Face tokenizer as a `Codec`.

    Args:
        tokenizer: any tokenizer with padding and end tokens.
        max_length: the longest source; longer ones lose their end.
        max_target_length: the longest target in training.
    """

    def __init__(
        self, tokenizer: Any, max_length: int | None = None, max_target_length: int | None = None
    ) -> None:
        known = int(tokenizer.model_max_length)
        # Tokenizers without a limit say so with a number near 1e30.
        limit = known if known < 1_000_000 else 512
        self.tokenizer = tokenizer
        self._max_length = min(limit, max_length or limit)
        self._max_target_length = min(limit, max_target_length or limit)

    @property
    def max_length(self) -> int:
        """The longest source, in tokens."""
        return self._max_length

    def encode(self, texts: Sequence[str]) -> Sources:
        """Sources of a batch, padded to the longest: see `Codec.encode`."""
        encoded = self.tokenizer(list(texts), add_special_tokens=True, verbose=False)["input_ids"]
        truncated = [len(ids) > self._max_length for ids in encoded]
        ids = [self._cut(row, self._max_length) for row in encoded]
        width = max(len(row) for row in ids)
        input_ids = torch.full((len(ids), width), int(self.tokenizer.pad_token_id or 0))
        mask = torch.zeros_like(input_ids)
        for row, values in enumerate(ids):
            input_ids[row, : len(values)] = torch.tensor(values)
            mask[row, : len(values)] = 1
        return Sources({"input_ids": input_ids, "attention_mask": mask}, truncated)

    def labels(self, texts: Sequence[str], sources: Sources | None = None) -> Tensor:
        """Targets of a batch: see `Codec.labels`."""
        encoded = self.tokenizer(text_target=list(texts), verbose=False)["input_ids"]
        ids = [self._cut(row, self._max_target_length) for row in encoded]
        labels = torch.full((len(ids), max(len(row) for row in ids)), IGNORED)
        for row, values in enumerate(ids):
            labels[row, : len(values)] = torch.tensor(values)
        return labels

    def pairs(self, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Tensor]:
        """A training batch: see `Codec.pairs`."""
        encoded = self.encode(sources)
        return {**encoded.tensors, "labels": self.labels(targets, encoded)}

    def decode(self, tokens: Sequence[int], sources: Sources, row: int) -> str:
        """The text without special tokens: see `Codec.decode`."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text.strip()

    def length(self, text: str) -> int:
        """How many tokens a source has."""
        return min(self._max_length, len(self.tokenizer(text, verbose=False)["input_ids"]))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the tokenizer's files."""
        self.tokenizer.save_pretrained(str(folder))

    def _cut(self, ids: list[int], length: int) -> list[int]:
        # The last token stays: it is the end-of-sequence token of all families but bare ones.
        return ids if len(ids) <= length else [*ids[: length - 1], ids[-1]]
