"""Variation Attention (Deng et al. 2018): which source position a word comes from is latent."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..backbones.executor import Executor
from ..backbones.memory import Memory
from ..backbones.recurrent import AdditiveAttention, BiLSTM
from ..data.codec import IGNORED
from ..errors import BadInput
from .auto import register
from .system import Draws, ElboOutput
from .word_system import WordSystem, WordSystemConfig

Estimator = Literal["enum", "exact", "sample", "gumbel", "wsram"]

_ROWS = 512  # distributions over the vocabulary that are in memory at once when all are asked for


class VariationAttentionConfig(WordSystemConfig):
    """Sizes of the published model, and how its bound is estimated in training.

    Attributes:
        embedding_size: of source and of target words, which are apart.
        encoder_size: of one direction of the encoder; its states have twice that.
        decoder_size: of the decoder's state.
        posterior_size: of one direction of the posterior's two readers.
        attention_size: of the space in which the prior compares.
        layers: of each LSTM.
        dropout: on word vectors and between layers.
        estimator: `enum`, the bound with every alignment; `exact`, the marginal itself without a
            posterior; `sample`, one alignment and a score function with the likelihood under soft
            attention as baseline; `gumbel`, one relaxed alignment; `wsram`, several, weighted.
        samples: how many alignments `wsram` draws.
        relaxation: the temperature of `gumbel`.
    """

    model_type = "variation-attention"

    def __init__(
        self,
        embedding_size: int = 512,
        encoder_size: int = 512,
        decoder_size: int = 768,
        posterior_size: int = 512,
        attention_size: int = 512,
        layers: int = 2,
        dropout: float = 0.3,
        estimator: Estimator = "sample",
        samples: int = 5,
        relaxation: float = 0.1,
        **kwargs: Any,
    ) -> None:
        if estimator not in get_args(Estimator):
            known = ", ".join(get_args(Estimator))
            raise BadInput(f"estimator is {estimator!r}: choose one of {known}")
        self.embedding_size = embedding_size
        self.encoder_size = encoder_size
        self.decoder_size = decoder_size
        self.posterior_size = posterior_size
        self.attention_size = attention_size
        self.layers = layers
        self.dropout = dropout
        self.estimator = estimator
        self.samples = samples
        self.relaxation = relaxation
        super().__init__(**kwargs)


class State(NamedTuple):
    """What the decoder remembers: hidden and cell of each layer, and the soft context."""

    hidden: tuple[Tensor, ...]
    cell: tuple[Tensor, ...]
    context: Tensor

    def select(self, rows: Tensor) -> "State":
        """The given rows."""
        return State(
            tuple(layer[rows] for layer in self.hidden),
            tuple(layer[rows] for layer in self.cell),
            self.context[rows],
        )


@dataclass(frozen=True)
class Words:
    """The real words of a batch's targets, each with what it needs of its sentence.

    Shapes: W words, N source positions, H decoder dimensions.

    Attributes:
        labels: y_t, `[W]`.
        queries: the decoder's state, `[W, H]`.
        soft: the soft context under the prior, `[W, D]`.
        prior: log p(a_t | x, y_<t), `[W, N]`, -inf at padding.
        rows: the sentence of each word, `[W]`.
    """

    labels: Tensor
    queries: Tensor
    soft: Tensor
    prior: Tensor
    rows: Tensor


class VariationAttention(WordSystem):
    """p(y|x) = prod_t sum_i p(a_t = i | x, y_<t) p(y_t | x_i, s_t), with q(a_t | x, y) in training.

    The word is said from the one state x_i that the alignment names, but the next decoder state
    reads the expectation sum_i p(a_t = i) x_i. So no state depends on an earlier alignment, and the
    marginal of a sentence is a product over its words.

    Shapes: B sources, R rows, N positions, T target words, W real target words, V words.
    """

    config_class = VariationAttentionConfig

    def __init__(self, config: VariationAttentionConfig) -> None:
        super().__init__(config)
        width, size = 2 * config.encoder_size, config.decoder_size
        between = config.dropout if config.layers > 1 else 0.0
        self.source_words = nn.Embedding(config.vocab_size, config.embedding_size)
        self.target_words = nn.Embedding(config.vocab_size, config.embedding_size)
        self.encoder = BiLSTM(config.embedding_size, config.encoder_size, config.layers, between)
        self.decoder = nn.ModuleList(
            nn.LSTMCell(config.embedding_size + width if layer == 0 else size, size)
            for layer in range(config.layers)
        )
        self.attention = AdditiveAttention(width, size, config.attention_size, bias=False)
        self.mix = nn.Linear(size + width, size)
        self.output = nn.Linear(size, config.vocab_size)
        self.posterior = AlignmentPosterior(config, between)
        self.dropout = nn.Dropout(config.dropout)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)
        self.post_init()

    # -- stages ------------------------------------------------------------------------------

    def encode(self, sources: Mapping[str, Tensor]) -> Memory:
        """The states x = BiLSTM(source), `[B, N, D]`."""
        mask = sources["attention_mask"].bool()
        words = self.dropout(self.source_words(sources["input_ids"]))
        states, _, _ = self.encoder(words, mask)
        return Memory(states, mask)

    def expected(self, memory: Memory) -> Memory:
        """The memory as it is: words are chosen by their exact marginal over alignments."""
        return memory

    def sampled(self, memory: Memory, draws: Draws) -> Memory:
        """Each sample with a number for each word that chooses its alignment from the prior."""
        uniform = draws.uniform()  # [B * S, T]
        memory = memory.repeat(len(draws.numbers))
        spread = torch.full_like(uniform[:, 0], draws.spread)
        extras = {**memory.extras, "alignment": uniform, "spread": spread}
        return Memory(memory.states, memory.mask, extras)

    def executor(self, memory: Memory) -> Executor:
        """The decoder: over alignments that the memory's numbers choose, or over all of them."""
        kind = DrawnExecutor if "alignment" in memory.extras else MarginalExecutor
        return kind(self, memory)

    # -- training ----------------------------------------------------------------------------

    def elbo(
        self, sources: Mapping[str, Tensor], labels: Tensor, sample: bool | None = None
    ) -> ElboOutput:
        """The bound by the configuration's estimator, or with every alignment.

        Args:
            sources: `input_ids` and `attention_mask`, `[B, N]`.
            labels: target words `[B, T]`, padding marked -100.
            sample: whether to estimate (the default in training); otherwise the bound is exact.
        """
        memory = self.encode(sources)
        words = self.read(memory, labels)
        estimator = self.config.estimator
        if not (self.training if sample is None else sample) and estimator != "exact":
            estimator = "enum"
        if estimator == "exact":
            nll = -torch.logsumexp(words.prior + self.log_likelihoods(memory, words), -1)
            return self._bound(nll, torch.zeros_like(nll), words, labels)
        posterior = self.posterior(
            self.dropout(self.source_words(sources["input_ids"])),
            self.dropout(self.target_words(labels.clamp(min=0))),
            memory.mask,
            labels != IGNORED,
        )[labels != IGNORED]  # [W, N]
        nll, kl = getattr(self, f"_{estimator}")(memory, words, posterior)
        return self._bound(nll, kl, words, labels)

    def read(self, memory: Memory, labels: Tensor) -> Words:
        """The decoder's states over the real words of the targets."""
        real = labels != IGNORED
        start = torch.full_like(labels[:, :1], self.start_token)
        late = labels[:, :-1].masked_fill(~real[:, :-1], self.pad_token)
        fed = self.dropout(self.target_words(torch.cat([start, late], 1)))
        keys = self.attention.keys(memory.states)
        state = self.first(memory)
        steps = []
        for position in range(labels.shape[1]):
            state, prior = self.advance(memory, keys, state, fed[:, position])
            steps.append((state.hidden[-1], state.context, prior))
        queries, soft, prior = (torch.stack(part, 1)[real] for part in zip(*steps, strict=True))
        return Words(labels[real], queries, soft, prior, real.nonzero()[:, 0])

    def first(self, memory: Memory) -> State:
        """The decoder starts from nothing."""
        zero = memory.states.new_zeros(len(memory), self.config.decoder_size)
        layers = (zero,) * self.config.layers
        return State(layers, layers, torch.zeros_like(memory.states[:, 0]))

    def advance(
        self, memory: Memory, keys: Tensor, state: State, fed: Tensor
    ) -> tuple[State, Tensor]:
        """One step: the next state, and log p(a_t | x, y_<t), `[R, N]`."""
        below = torch.cat([fed, state.context], -1)
        hidden, cell = [], []
        for layer, (h, c) in zip(
            self.decoder, zip(state.hidden, state.cell, strict=True), strict=True
        ):
            h, c = layer(below, (h, c))
            hidden.append(h)
            cell.append(c)
            below = self.dropout(h)
        prior = self.attention(keys, memory.mask, hidden[-1])
        context = torch.bmm(prior.exp()[:, None].to(memory.states.dtype), memory.states)[:, 0]
        return State(tuple(hidden), tuple(cell), context), prior

    def said_from(self, queries: Tensor, contexts: Tensor) -> Tensor:
        """What a word is said from, tanh(W [s_t; x_i]), `[..., H]`."""
        size = queries.shape[-1]
        from_query = F.linear(queries, self.mix.weight[:, :size], self.mix.bias)
        return torch.tanh(from_query + F.linear(contexts, self.mix.weight[:, size:]))

    def log_likelihood(self, words: Words, contexts: Tensor) -> Tensor:
        """Give log p(y_t | context), `[W]`, for contexts `[W, D]`."""
        return self._log_p(self.said_from(words.queries, contexts), words.labels)

    def log_likelihoods(self, memory: Memory, words: Words) -> Tensor:
        """Give log p(y_t | a_t = i) of every position, `[W, N]`; 0 at padding."""
        real = memory.mask[words.rows]  # [W, N]
        word, position = real.nonzero().unbind(1)
        states = memory.states[words.rows[word], position]
        found = []
        for start in range(0, len(word), _ROWS):
            part = slice(start, start + _ROWS)
            found.append(
                checkpoint(
                    self._log_p_of,
                    words.queries[word[part]],
                    states[part],
                    words.labels[word[part]],
                    use_reentrant=False,
                )
            )
        log_p = torch.cat(found)
        return log_p.new_zeros(real.shape).index_put((word, position), log_p)

    def _log_p_of(self, queries: Tensor, contexts: Tensor, labels: Tensor) -> Tensor:
        return self._log_p(self.said_from(queries, contexts), labels)

    def _log_p(self, features: Tensor, labels: Tensor) -> Tensor:
        logits = self.output(self.dropout(features))
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return -F.cross_entropy(wide, labels, reduction="none")

    def _enum(self, memory: Memory, words: Words, posterior: Tensor) -> tuple[Tensor, Tensor]:
        """-sum_i q_i log p(y|i), and KL(q||p)."""
        likelihood = self.log_likelihoods(memory, words)
        return -(posterior.exp() * likelihood).sum(-1), alignment_kl(posterior, words.prior)

    def _sample(self, memory: Memory, words: Words, posterior: Tensor) -> tuple[Tensor, Tensor]:
        """One i ~ q; the score function's reward is less the likelihood under soft attention."""
        drawn = torch.multinomial(posterior.exp(), 1)  # [W, 1]
        likelihood = self.log_likelihood(words, memory.states[words.rows, drawn[:, 0]])
        with torch.no_grad():
            baseline = self.log_likelihood(words, words.soft)
        reward = likelihood.detach() - baseline
        log_q = posterior.gather(1, drawn)[:, 0]
        # The second term is 0 and has the gradient of -reward log q.
        return -likelihood - reward * (log_q - log_q.detach()), alignment_kl(posterior, words.prior)

    def _gumbel(self, memory: Memory, words: Words, posterior: Tensor) -> tuple[Tensor, Tensor]:
        """One relaxed one-hot vector, softmax((log q + g) / temperature), and its context."""
        gumbel = -torch.empty_like(posterior).exponential_().log()
        relaxed = ((posterior + gumbel) / self.config.relaxation).softmax(-1)
        context = torch.bmm(relaxed[:, None].to(memory.states.dtype), memory.states[words.rows])
        likelihood = self.log_likelihood(words, context[:, 0])
        return -likelihood, alignment_kl(posterior, words.prior)

    def _wsram(self, memory: Memory, words: Words, posterior: Tensor) -> tuple[Tensor, Tensor]:
        """K draws from q, weighted by p(a) p(y|a) / q(a); p(y|a), p(a) and q(a) follow them."""
        count = self.config.samples
        drawn = torch.multinomial(posterior.detach().exp(), count, replacement=True)  # [W, K]
        likelihood = torch.stack(
            [
                self.log_likelihood(words, memory.states[words.rows, draw])
                for draw in drawn.unbind(1)
            ],
            1,
        )
        log_p, log_q = words.prior.gather(1, drawn), posterior.gather(1, drawn)
        log_weight = (likelihood + log_p - log_q).detach()
        weight = log_weight.softmax(-1)
        value = math.log(count) - log_weight.logsumexp(-1)
        loss = -(weight * (likelihood + log_p + log_q)).sum(-1)
        return value + loss - loss.detach(), torch.zeros_like(value)

    def _bound(self, nll: Tensor, kl: Tensor, words: Words, labels: Tensor) -> ElboOutput:
        entropy = -(words.prior.exp() * words.prior.clamp(min=-1e4)).sum(-1).detach()

        def per_sentence(values: Tensor) -> Tensor:
            return values.new_zeros(len(labels)).index_add(0, words.rows, values)

        return ElboOutput.of(
            per_sentence(nll),
            per_sentence(kl),
            labels,
            diagnose=lambda: {"alignment_entropy": float(entropy.mean())},
        )


class AlignmentPosterior(nn.Module):
    """log q(a_t | x, y) = log softmax_i h_y,t W h_x,i, with a reader for each of x and y."""

    def __init__(self, config: VariationAttentionConfig, dropout: float) -> None:
        super().__init__()
        size = config.posterior_size
        self.source = BiLSTM(config.embedding_size, size, config.layers, dropout)
        self.target = BiLSTM(config.embedding_size, size, config.layers, dropout)
        self.score = nn.Linear(2 * size, 2 * size, bias=False)

    def forward(self, source: Tensor, target: Tensor, mask: Tensor, real: Tensor) -> Tensor:
        """Word vectors of source `[B, N, E]` and target `[B, T, E]` to log q, `[B, T, N]`."""
        positions, _, _ = self.source(source, mask)
        words, _, _ = self.target(target, real)
        scores = torch.bmm(words, self.score(positions).mT)
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return wide.masked_fill(~mask[:, None], -torch.inf).log_softmax(-1)


def alignment_kl(q: Tensor, p: Tensor) -> Tensor:
    """KL(q||p) of log-probabilities `[W, N]`, with 0 log 0 = 0, `[W]`."""
    possible = q > -torch.inf
    difference = q.where(possible, 0.0) - p.where(possible, 0.0)
    return (q.exp() * difference).sum(-1)


class MarginalExecutor:
    """The decoder that says each word by its exact marginal, sum_i p(a_t = i) p(y_t | i)."""

    def __init__(self, system: VariationAttention, memory: Memory) -> None:
        self.system = system
        self.memory = memory
        self._keys = system.attention.keys(memory.states)
        self._state = system.first(memory)
        self._source = torch.arange(len(memory), device=memory.states.device)

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """Read one token per row: see `Executor.step`."""
        if parents is not None:
            self._continue(parents)
        system = self.system
        self._state, prior = system.advance(
            self.memory, self._keys, self._state, system.target_words(tokens)
        )
        return self.features(prior)

    def features(self, prior: Tensor) -> Tensor:
        """The decoder's state, log p(a_t) and the number of the row, `[R, H + N + 1]`."""
        row = torch.arange(len(prior), device=prior.device)[:, None]
        return torch.cat([self.query.to(prior.dtype), prior, row], -1)

    @property
    def query(self) -> Tensor:
        """The decoder's state, `[R, H]`."""
        return self._state.hidden[-1]

    def logits(self, features: Tensor) -> Tensor:
        """Give log p of each word, `[R, V]`, one source position after the other."""
        system, size = self.system, self.system.config.decoder_size
        query = features[:, :size].to(system.output.weight.dtype)
        prior = features[:, size:-1].exp()
        states = self.memory.states[features[:, -1].long()]
        total: Tensor | None = None
        for position in range(int(self.memory.mask.sum(1).max())):
            said = system.output(system.said_from(query, states[:, position]))
            p = said.to(prior.dtype).softmax(-1) * prior[:, position, None]
            total = p if total is None else total.add_(p)
        assert total is not None
        return total.log()

    def _continue(self, parents: Tensor) -> None:
        self._state = self._state.select(parents)
        source = self._source[parents]
        if not torch.equal(source, self._source):
            self.memory = self.memory.select(parents)
            self._keys = self._keys[parents]
            self._source = source


class DrawnExecutor(MarginalExecutor):
    """The decoder that says each word from the one position that a sample's number draws.

    The numbers belong to the sample, not to the hypothesis: all beams of a sample share them.
    """

    def __init__(self, system: VariationAttention, memory: Memory) -> None:
        super().__init__(system, memory)
        self._position = 0

    def features(self, prior: Tensor) -> Tensor:
        """What the word is said from, `[R, H]`."""
        tempered = prior / self.memory.extras["spread"][:, None]
        mass = tempered.double().softmax(-1).cumsum(-1)
        uniform = self.memory.extras["alignment"][:, self._position, None].double()
        drawn = torch.searchsorted(mass, uniform * mass[:, -1:], right=True)
        drawn = torch.minimum(drawn[:, 0], self.memory.mask.sum(1) - 1)
        self._position += 1
        rows = torch.arange(len(prior), device=prior.device)
        return self.system.said_from(self.query, self.memory.states[rows, drawn])

    def logits(self, features: Tensor) -> Tensor:
        """The logits of each word, `[R, V]`."""
        logits: Tensor = self.system.output(features)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


register(VariationAttentionConfig, VariationAttention)
