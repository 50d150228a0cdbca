"""The row that every table needs: a system that says its source again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..backbones.executor import Executor, Rules
from ..backbones.memory import Memory
from ..data.codec import Codec, Sources
from ..data.vocabulary import Vocabulary
from .auto import register
from .system import Draws, ElboOutput
from .word_system import WordSystem, WordSystemConfig

END, TEXT = 0, 1


class CopySourceConfig(WordSystemConfig):
    """Nothing can be set."""

    model_type = "copy-source"

    def __init__(self, **kwargs: Any) -> None:  # transformers would write one that calls no other
        super().__init__(**kwargs)


class WholeTextCodec:
    """A vocabulary of one word, which is the source itself, and the end."""

    max_length = 1

    def encode(self, texts: Sequence[str]) -> Sources:
        """Each text as its own one word: see `Codec.encode`."""
        ids = torch.full((len(texts), 1), TEXT)
        tensors = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        return Sources(tensors, [False] * len(texts), [[text] for text in texts])

    def labels(self, texts: Sequence[str], sources: Sources) -> Tensor:
        """The source for every target: see `Codec.labels`."""
        return torch.tensor([[TEXT, END]]).repeat(len(texts), 1)

    def pairs(self, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Tensor]:
        """A batch to look at, for there is nothing to train: see `Codec.pairs`."""
        encoded = self.encode(sources)
        return {**encoded.tensors, "labels": self.labels(targets, encoded)}

    def decode(self, tokens: Sequence[int], sources: Sources, row: int) -> str:
        """The source: see `Codec.decode`."""
        return " ".join(sources.private[row] * tokens.count(TEXT))

    def length(self, text: str) -> int:
        """One."""
        return 1

    def save_pretrained(self, folder: str | Path) -> None:
        """Nothing needs to be written."""


class CopySource(WordSystem):
    """p(source | source) = 1."""

    config_class = CopySourceConfig
    start_token = pad_token = END
    rules = Rules(end=END)
    has_latent = False

    def __init__(self, config: CopySourceConfig) -> None:
        super().__init__(config)
        self.nothing = nn.Parameter(torch.zeros(1), requires_grad=False)  # says on which device
        self.post_init()

    def codec(self, name: str, max_length: int | None = None) -> Codec:
        """The one word that there is."""
        return WholeTextCodec()

    @classmethod
    def codec_for(cls, words: Vocabulary, max_length: int | None = None) -> Codec:
        """The same: no vocabulary is needed."""
        return WholeTextCodec()

    def encode(self, sources: Mapping[str, Tensor]) -> Memory:
        """Nothing needs to be known of a source."""
        mask = sources["attention_mask"].bool()
        return Memory(torch.zeros(*mask.shape, 1, device=mask.device), mask)

    def expected(self, memory: Memory) -> Memory:
        """The memory as it is."""
        return memory

    def sampled(self, memory: Memory, draws: Draws) -> Memory:
        """There is nothing to sample."""
        raise TypeError("copying the source leaves nothing to chance")

    def executor(self, memory: Memory) -> Executor:
        """The decoder: the source, then the end."""
        return CopyExecutor()

    def elbo(
        self, sources: Mapping[str, Tensor], labels: Tensor, sample: bool | None = None
    ) -> ElboOutput:
        """A bound of 0: nothing is learned."""
        nothing = torch.zeros(len(labels), device=labels.device)
        return ElboOutput.of(nothing, nothing, labels)


class CopyExecutor:
    """The text at the first step, the end at every other."""

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """The word to say: see `Executor.step`."""
        return torch.full((len(tokens), 1), float(TEXT if parents is None else END))

    def logits(self, features: Tensor) -> Tensor:
        """All probability on one word, `[R, 2]`."""
        words = torch.arange(2, device=features.device)
        return torch.where(words == features, 0.0, -torch.inf)


register(CopySourceConfig, CopySource)
