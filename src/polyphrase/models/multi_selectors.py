"""Multi-Selectors (Cho et al. 2019): K experts choose what to say, one generator says it."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..backbones.executor import Executor
from ..backbones.memory import Memory
from ..backbones.pointer_generator import PointerGenerator, PointerGeneratorConfig
from ..backbones.recurrent import BiGRU
from ..data.codec import IGNORED, Codec
from ..data.focus import FocusCodec
from ..data.vocabulary import Vocabulary
from .auto import register
from .system import Draws, ElboOutput
from .word_system import WordSystem, WordSystemConfig


class MultiSelectorsConfig(WordSystemConfig):
    """Sizes of the published recipe for summaries and headlines.

    Attributes:
        experts: K.
        embedding_size: of the word vectors, which selector and generator share.
        encoder_size: of one direction of the generator's encoder.
        decoder_size: of its decoder, and of the selector's hidden layer.
        attention_size: of the generator's attention.
        focus_size: of the vector that tells the encoder where to focus.
        selector_size: of one direction of the selector's reader.
        expert_size: of the vector that makes an expert different from the others.
        selector_dropout: on the selector's word vectors.
        threshold: a word is in focus when its probability is above this.
        coverage: whether the generator has coverage.
        dropout: of the generator.
    """

    model_type = "multi-selectors"

    def __init__(
        self,
        experts: int = 3,
        embedding_size: int = 300,
        encoder_size: int = 256,
        decoder_size: int = 512,
        attention_size: int = 700,
        focus_size: int = 16,
        selector_size: int = 256,
        expert_size: int = 300,
        selector_dropout: float = 0.2,
        threshold: float = 0.15,
        coverage: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        self.experts = experts
        self.embedding_size = embedding_size
        self.encoder_size = encoder_size
        self.decoder_size = decoder_size
        self.attention_size = attention_size
        self.focus_size = focus_size
        self.selector_size = selector_size
        self.expert_size = expert_size
        self.selector_dropout = selector_dropout
        self.threshold = threshold
        self.coverage = coverage
        self.dropout = dropout
        super().__init__(**kwargs)

    @property
    def generator(self) -> PointerGeneratorConfig:
        """The generator's sizes."""
        return PointerGeneratorConfig(
            vocab_size=self.vocab_size,
            embedding_size=self.embedding_size,
            encoder_size=self.encoder_size,
            decoder_size=self.decoder_size,
            attention_size=self.attention_size,
            focus_size=self.focus_size,
            coverage=self.coverage,
            dropout=self.dropout,
        )


class MultiSelectors(WordSystem):
    """p(y|x) = 1/K sum_k p(y | x, m_k), with m_k the words that expert k puts in focus.

    Trained by hard EM: the selector's expert that explains the target's focus best is the only one
    that learns from it, while the generator learns from the focus itself. Sample k is what expert
    k mod K says; K bounds the number of different outputs of a search without chance.

    Shapes: B sources, K experts, N positions, T target words.
    """

    config_class = MultiSelectorsConfig
    copying: ClassVar[bool] = True

    def __init__(self, config: MultiSelectorsConfig) -> None:
        super().__init__(config)
        self.generator = PointerGenerator(config.generator)
        self.selector = Selector(config)
        self.post_init()

    @classmethod
    def codec_for(cls, words: Vocabulary, max_length: int | None = None) -> Codec:
        """Words, with the focus of each training pair."""
        return FocusCodec(words, max_length)

    # -- stages ------------------------------------------------------------------------------

    def encode(self, sources: Mapping[str, Tensor]) -> Memory:
        """What the selectors have read of the sources, and where each expert puts the focus."""
        words, mask = sources["input_ids"], sources["attention_mask"].bool()
        states, scores = self.selector(self.generator.embed(words), mask)
        focus = (scores.sigmoid() > self.config.threshold) & mask[:, None]  # [B, K, N]
        return Memory(states, mask, {"words": words, "focus": focus})

    def expected(self, memory: Memory) -> Memory:
        """What the decoder sees for each expert: K rows for each source."""
        return self._focused(memory, list(range(self.config.experts)))

    def sampled(self, memory: Memory, draws: Draws) -> Memory:
        """What the decoder sees for expert k mod K in sample k."""
        return self._focused(memory, [number % self.config.experts for number in draws.numbers])

    def executor(self, memory: Memory) -> Executor:
        """The generator's decoder."""
        return self.generator.executor(memory)

    def _focused(self, memory: Memory, experts: list[int]) -> Memory:
        repeated = memory.repeat(len(experts))
        chosen = torch.tensor(experts, device=repeated.mask.device).repeat(len(memory))
        rows = torch.arange(len(repeated), device=chosen.device)
        return self.generator.encode(
            {
                "input_ids": repeated.extras["words"],
                "attention_mask": repeated.mask,
                "focus": repeated.extras["focus"][rows, chosen].long(),
            }
        )

    # -- training ----------------------------------------------------------------------------

    def elbo(
        self, sources: Mapping[str, Tensor], labels: Tensor, sample: bool | None = None
    ) -> ElboOutput:
        """One step of hard EM: the generator's NLL under the true focus, the selector's beside it.

        Args:
            sources: `input_ids`, `attention_mask` and `focus`, `[B, N]`.
            labels: target words `[B, T]`, padding marked -100.
            sample: nothing is drawn.
        """
        mask, focus = sources["attention_mask"].bool(), sources["focus"]
        best = self.best_experts(sources)
        _, scores = self.selector(self.generator.embed(sources["input_ids"]), mask)
        scores = scores[torch.arange(len(best), device=best.device), best]
        selection = selection_loss(scores, focus, mask)  # [B]
        nll, repetition = self.generator.losses(self.generator.encode(sources), labels)
        # The selector's loss is a mean over source words, the generator's over target words.
        penalty = selection * ((labels != IGNORED).sum() / mask.sum())
        if repetition is not None:
            penalty = penalty + repetition
        used = torch.bincount(best, minlength=self.config.experts)
        return ElboOutput.of(
            nll,
            torch.zeros_like(nll),
            labels,
            diagnose=lambda: {"experts_used": float((used > 0).sum())},
            penalty=penalty,
        )

    @torch.no_grad()
    def best_experts(self, sources: Mapping[str, Tensor]) -> Tensor:
        """The E-step: the expert whose selection is nearest to the true focus, `[B]`."""
        mask = sources["attention_mask"].bool()
        training = self.training
        self.eval()
        _, scores = self.selector(self.generator.embed(sources["input_ids"]), mask)
        self.train(training)
        return selection_loss(scores, sources["focus"][:, None], mask[:, None]).argmin(-1)


class Selector(nn.Module):
    """Score of word i for expert k: w tanh(W [h_i; s; e_k]), each word by itself."""

    def __init__(self, config: MultiSelectorsConfig) -> None:
        super().__init__()
        size, width = config.decoder_size, 2 * config.selector_size
        self.dropout = nn.Dropout(config.selector_dropout)
        self.reader = BiGRU(config.embedding_size, config.selector_size)
        self.sentence = nn.Linear(width, size)
        self.experts = nn.Embedding(config.experts, config.expert_size)
        self.hidden = nn.Linear(width + size + config.expert_size, size)
        self.score = nn.Linear(size, 1)

    def forward(self, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Read word vectors `[B, N, E]`.

        Returns:
            The reader's states `[B, N, H]`, and the score of each word for each expert `[B, K, N]`.
        """
        states, last = self.reader(self.dropout(words), mask)
        sentence = F.leaky_relu(self.sentence(last))
        at = [states.shape[-1], sentence.shape[-1], self.experts.embedding_dim]
        of_state, of_sentence, of_expert = self.hidden.weight.split(at, 1)
        shared = F.linear(states, of_state, self.hidden.bias)
        shared = shared + F.linear(sentence, of_sentence)[:, None]
        own = F.linear(self.experts.weight, of_expert)  # [K, size]
        hidden = torch.tanh(shared[:, None] + own[:, None])  # [B, K, N, size]
        return states, self.score(hidden)[..., 0]


def selection_loss(scores: Tensor, focus: Tensor, mask: Tensor) -> Tensor:
    """Sum over the real positions of the cross-entropy of focus and sigmoid(score)."""
    focus = focus.to(scores.dtype).expand_as(scores)
    loss = F.binary_cross_entropy_with_logits(scores, focus, reduction="none")
    return (loss * mask).sum(-1)


register(MultiSelectorsConfig, MultiSelectors)
