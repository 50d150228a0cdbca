"""The pointer-generator (See et al. 2017): an LSTM encoder-decoder that can copy words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, GenerationConfig, PretrainedConfig

from ..data.codec import IGNORED
from ..data.vocabulary import Vocabulary, VocabularyCodec
from .memory import Memory
from .recurrent import AdditiveAttention, BiLSTM, start_lstm


class PointerGeneratorConfig(PretrainedConfig):
    """Sizes of a pointer-generator; the defaults are the paper's (appendix C).

    Attributes:
        vocab_size: V, the words with rows of their own, the special ones included.
        embedding_size: of the word vectors, which encoder and decoder share.
        encoder_size: of one direction of the encoder; its states have twice that.
        decoder_size: of the decoder's state.
        attention_size: of the space in which attention compares.
        bottleneck: states pass through this many dimensions, linearly, on their way to the decoder,
            so that a model without a latent differs from one with a latent of this size in the
            stochastic step alone; `None` is the original, without one.
        focus_size: of a vector that tells the encoder which words to focus on; 0 for none.
        coverage: whether attention knows where it has been, and pays for going there again.
        dropout: on word vectors and on what the output layer reads.
    """

    model_type = "pointer-generator"

    def __init__(
        self,
        vocab_size: int = 20_000,
        embedding_size: int = 300,
        encoder_size: int = 512,
        decoder_size: int = 512,
        attention_size: int = 1024,
        bottleneck: int | None = None,
        focus_size: int = 0,
        coverage: bool = False,
        dropout: float = 0.0,
        pad_token_id: int = 0,
        unk_token_id: int = 1,
        decoder_start_token_id: int = 2,
        eos_token_id: int = 3,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.encoder_size = encoder_size
        self.decoder_size = decoder_size
        self.attention_size = attention_size
        self.bottleneck = bottleneck
        self.focus_size = focus_size
        self.coverage = coverage
        self.dropout = dropout
        self.unk_token_id = unk_token_id
        kwargs.setdefault("is_encoder_decoder", True)
        super().__init__(
            pad_token_id=pad_token_id,
            eos_token_id=eos_token_id,
            decoder_start_token_id=decoder_start_token_id,
            **kwargs,
        )


class PointerGenerator(nn.Module):
    """P(w) = g P_vocab(w) + (1 - g) sum_{i: x_i = w} a_i, with g = p_gen and a the attention.

    Words are numbered as `VocabularyCodec` does: ids from V on are words of one source only. As in
    the original, attention at step t asks with the state that has read y_{t-1}, the output layer
    reads that state and its context, and the decoder starts from the encoder's last states.

    Shapes: B sources, R rows, N positions, T target words, W real target words, V words.
    """

    max_source_length: int | None = None

    def __init__(self, config: PointerGeneratorConfig) -> None:
        super().__init__()
        self.config = config
        size, embedding = config.decoder_size, config.embedding_size
        self.width = 2 * config.encoder_size
        self.embedding = nn.Embedding(config.vocab_size, embedding)
        self.focus = nn.Embedding(2, config.focus_size) if config.focus_size else None
        self.encoder = BiLSTM(embedding + config.focus_size, config.encoder_size)
        self.start_hidden = nn.Linear(self.width, size)
        self.start_cell = nn.Linear(self.width, size)
        self.bottleneck: nn.Module | None = None
        if config.bottleneck is not None:
            self.bottleneck = nn.Sequential(
                nn.Linear(self.width, config.bottleneck), nn.Linear(config.bottleneck, self.width)
            )
        self.feed = nn.Linear(self.width + embedding, embedding)
        self.decoder = nn.LSTMCell(embedding, size)
        self.attention = AdditiveAttention(
            self.width, 2 * size, config.attention_size, coverage=config.coverage
        )
        self.switch = nn.Linear(self.width + 2 * size + embedding, 1)
        self.hidden = nn.Linear(self.width + size, size)
        self.output = nn.Linear(size, config.vocab_size)
        self.dropout = nn.Dropout(config.dropout)
        nn.init.normal_(self.embedding.weight, std=0.1)
        start_lstm(self.decoder)

    @property
    def generation_config(self) -> GenerationConfig:
        """The special words, and that no output ever shows them."""
        config = self.config
        return GenerationConfig(
            pad_token_id=config.pad_token_id,
            eos_token_id=config.eos_token_id,
            decoder_start_token_id=config.decoder_start_token_id,
            suppress_tokens=[
                config.pad_token_id,
                config.unk_token_id,
                config.decoder_start_token_id,
            ],
        )

    @property
    def input_embeddings(self) -> nn.Module:
        """The word embeddings."""
        return self.embedding

    @property
    def output_embeddings(self) -> nn.Module:
        """The output layer."""
        return self.output

    def codec(self, name: str, max_length: int | None = None) -> VocabularyCodec:
        """The vocabulary of a folder."""
        return VocabularyCodec(Vocabulary.load(name), max_length)

    def embed(self, words: Tensor) -> Tensor:
        """Word vectors; a word of one source alone has that of the unknown word."""
        known = words.masked_fill(words >= self.config.vocab_size, self.config.unk_token_id)
        return self.dropout(self.embedding(known))

    def encode(self, sources: Mapping[str, Tensor]) -> Memory:
        """Give h = BiLSTM(x), `[B, N, D_h]`, with the decoder's first state and the words to copy.

        Args:
            sources: `input_ids` and `attention_mask`, `[B, N]`, padded on the right; and `focus`,
                1 at the words to focus on, for an encoder that has a vector for it.
        """
        words, mask = sources["input_ids"], sources["attention_mask"].bool()
        features = self.embed(words)
        if self.focus is not None:
            features = torch.cat([features, self.focus(sources["focus"])], -1)
        states, hidden, cell = self.encoder(features, mask)
        if self.bottleneck is not None:
            states = self.bottleneck(states)
        extras = {
            "hidden": F.relu(self.start_hidden(hidden)),
            "cell": F.relu(self.start_cell(cell)),
            "words": words,
        }
        return Memory(states, mask, extras)

    def nll(self, memory: Memory, labels: Tensor) -> Tensor:
        """-log P(y | memory), summed over the words of each target, `[R]`."""
        return self.losses(memory, labels)[0]

    def losses(self, memory: Memory, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """What training pays for: words, and attending twice to one place.

        Args:
            memory: what the decoder attends to.
            labels: target words `[R, T]`, padding marked by `IGNORED`.

        Returns:
            -log P(y | memory), and with coverage sum_t sum_i min(a_ti, cov_ti); both `[R]`.
        """
        real = labels != IGNORED
        fed = self._fed(self._read(labels, real))
        keys = self.attention.keys(memory.states)
        state = State.first(memory, self.config.coverage)
        states, attentions = [], []
        again = memory.states.new_zeros(len(labels)) if self.config.coverage else None
        for position in range(labels.shape[1]):
            before = state.coverage
            state, x, attention = self._advance(memory, keys, state, fed[:, position])
            states.append(state.features(x))
            attentions.append(attention)
            if again is not None and before is not None:
                again = again + torch.minimum(attention, before).sum(-1) * real[:, position]
        words = labels[real]  # [W]
        rows = real.nonzero()[:, 0]  # [W]
        logits, gate = self._words(torch.stack(states, 1)[real])
        known = words < self.config.vocab_size
        nothing = math.log(torch.finfo(logits.dtype).tiny)
        generated = F.logsigmoid(gate) - F.cross_entropy(
            logits, words.where(known, 0), reduction="none"
        )
        here = memory.extras["words"][rows] == words[:, None]  # [W, N]
        copied = (torch.stack(attentions, 1)[real] * here).sum(-1)
        log_p = torch.logaddexp(
            torch.where(known, generated, nothing),
            F.logsigmoid(-gate) + copied.clamp(min=math.exp(nothing)).log(),
        )
        return log_p.new_zeros(len(labels)).index_add(0, rows, -log_p), again

    def executor(self, memory: Memory) -> "PointerExecutor":
        """The decoder, ready to run over the rows of `memory`."""
        return PointerExecutor(self, memory)

    def _read(self, labels: Tensor, real: Tensor) -> Tensor:
        """What the decoder reads: the target one step late, `[R, T]`."""
        config = self.config
        start = labels.new_full((len(labels), 1), int(config.decoder_start_token_id))
        late = labels[:, :-1].masked_fill(~real[:, :-1], int(config.pad_token_id))
        return torch.cat([start, late], 1)

    def _fed(self, words: Tensor) -> Tensor:
        """The words' part of the decoder's input, `[..., E]`."""
        return F.linear(self.embed(words), self.feed.weight[:, self.width :], self.feed.bias)

    def _advance(
        self, memory: Memory, keys: Tensor, state: "State", fed: Tensor
    ) -> tuple["State", Tensor, Tensor]:
        """One step: the next state, the decoder's input x `[R, E]`, the attention `[R, N]`."""
        x = fed + F.linear(state.context, self.feed.weight[:, : self.width])
        hidden, cell = self.decoder(x, (state.hidden, state.cell))
        query = torch.cat([hidden, cell], -1)
        attention = self.attention(keys, memory.mask, query, state.coverage).exp()
        context = torch.bmm(attention[:, None], memory.states)[:, 0]
        coverage = None if state.coverage is None else state.coverage + attention
        return State(hidden, cell, context, coverage), x, attention

    def _words(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of P_vocab `[W, V]` and of p_gen `[W]`."""
        gate = self.switch(features)[:, 0]
        hidden = self.hidden(features[:, : self.hidden.in_features])
        logits = self.output(self.dropout(hidden))
        wide = torch.promote_types(logits.dtype, torch.float32)
        return logits.to(wide), gate.to(wide)


@dataclass(frozen=True)
class State:
    """What the decoder remembers: its LSTM's two states, its last context, where it has been."""

    hidden: Tensor
    cell: Tensor
    context: Tensor
    coverage: Tensor | None

    @classmethod
    def first(cls, memory: Memory, coverage: bool) -> "State":
        """Before the first step nothing has been attended to."""
        return cls(
            memory.extras["hidden"],
            memory.extras["cell"],
            memory.states.new_zeros(len(memory), memory.states.shape[-1]),
            torch.zeros_like(memory.mask, dtype=memory.states.dtype) if coverage else None,
        )

    def features(self, x: Tensor) -> Tensor:
        """[context; hidden; cell; x]: what word and switch are read from."""
        return torch.cat([self.context, self.hidden, self.cell, x], -1)

    def select(self, rows: Tensor) -> "State":
        """The given rows."""
        coverage = None if self.coverage is None else self.coverage[rows]
        return State(self.hidden[rows], self.cell[rows], self.context[rows], coverage)


class PointerExecutor:
    """The decoder behind `Executor`.

    The attention's keys are computed once for each row of the memory, and copied only when rows
    branch or end. The logits are log P over the vocabulary and the unknown words of the batch's
    sources; a row gives those that are not its own probability 0.
    """

    def __init__(self, network: PointerGenerator, memory: Memory) -> None:
        self._network = network
        self._memory = memory
        self._keys = network.attention.keys(memory.states)
        self._state = State.first(memory, network.config.coverage)
        self._source = torch.arange(len(memory), device=memory.states.device)
        known = network.config.vocab_size
        self._private = max(0, int(memory.extras["words"].max()) + 1 - known)

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """Read one token per row: see `Executor.step`."""
        if parents is not None:
            self._continue(parents)
        network = self._network
        self._state, x, attention = network._advance(
            self._memory, self._keys, self._state, network._fed(tokens)
        )
        row = torch.arange(len(tokens), device=tokens.device)[:, None]  # exact in float32
        wide = torch.promote_types(x.dtype, torch.float32)
        return torch.cat([self._state.features(x).to(wide), attention.to(wide), row], -1)

    def logits(self, features: Tensor) -> Tensor:
        """Give log P, `[R, V + O]`: see `Executor.logits`."""
        words = self._memory.extras["words"][features[:, -1].long()]
        read, attention = features[:, :-1].split(
            [features.shape[1] - 1 - words.shape[1], words.shape[1]], -1
        )
        logits, gate = self._network._words(read.to(self._network.output.weight.dtype))
        p = F.pad(logits.softmax(-1) * gate.sigmoid()[:, None], (0, self._private))
        copied = attention.to(p.dtype) * (-gate).sigmoid()[:, None]
        return p.scatter_add(1, words, copied).log()

    def _continue(self, parents: Tensor) -> None:
        self._state = self._state.select(parents)
        source = self._source[parents]
        if not torch.equal(source, self._source):
            self._memory = self._memory.select(parents)
            self._keys = self._keys[parents]
            self._source = source


AutoConfig.register(PointerGeneratorConfig.model_type, PointerGeneratorConfig, exist_ok=True)
