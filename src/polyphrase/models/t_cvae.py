"""T-CVAE (Wang and Wan 2019): one Transformer reads and writes, one latent for the whole output."""

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from ..backbones.executor import Executor
from ..backbones.memory import Memory
from ..data.codec import IGNORED
from .auto import register
from .system import Draws, ElboOutput
from .word_system import WordSystem, WordSystemConfig

ACTIVE = 0.01
"""Nats of KL from which on a latent dimension counts as active."""


class TCVAEConfig(WordSystemConfig):
    """Sizes of the published model.

    Attributes:
        size: d, of a state.
        layers: blocks, which read the source and write the target alike.
        heads: of attention.
        feed_forward: the inner size of a block.
        embedding_size: of a word vector.
        side_size: of the vectors of a segment and of a position.
        latent_size: of z.
        dropout: after each part of a block.
    """

    model_type = "t-cvae"

    def __init__(
        self,
        size: int = 512,
        layers: int = 6,
        heads: int = 8,
        feed_forward: int = 1024,
        embedding_size: int = 300,
        side_size: int = 150,
        latent_size: int = 64,
        dropout: float = 0.15,
        **kwargs: Any,
    ) -> None:
        self.size = size
        self.layers = layers
        self.heads = heads
        self.feed_forward = feed_forward
        self.embedding_size = embedding_size
        self.side_size = side_size
        self.latent_size = latent_size
        self.dropout = dropout
        super().__init__(**kwargs)


class TCVAE(WordSystem):
    """p(y|x) = E_{p(z|x)} prod_t p(y_t | y_<t, x, z), with q(z|x, y) in training.

    Source and target run through the same blocks: the source sees itself, a target position sees
    the source and what is before it, layer by layer. A second pass over both, without that order,
    gives q; the source's own states give p, by the same pooling. z is joined to each last state.

    Shapes: B sources, R rows, N source and T target positions, L layers, D latent dimensions.
    """

    config_class = TCVAEConfig

    def __init__(self, config: TCVAEConfig) -> None:
        super().__init__(config)
        size = config.size
        self.words = nn.Embedding(config.vocab_size, config.embedding_size)
        self.segments = nn.Embedding(2, config.side_size)
        self.enter = nn.Linear(config.embedding_size + 2 * config.side_size, size, bias=False)
        self.stack = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.pool = Pool(size, config.heads)
        self.posterior = nn.Linear(size, 2 * config.latent_size, bias=False)
        self.prior = nn.Sequential(
            nn.Linear(size, 256), nn.Tanh(), nn.Linear(256, 2 * config.latent_size, bias=False)
        )
        self.join = nn.Linear(size + config.latent_size, size, bias=False)
        self.output = nn.Linear(size, config.vocab_size)
        self.dropout = nn.Dropout(config.dropout)
        nn.init.normal_(self.words.weight, std=0.1)
        nn.init.normal_(self.segments.weight, std=0.1)
        self.post_init()

    @property
    def blocks(self) -> list["Block"]:
        """The blocks, from the first on."""
        return [block for block in self.stack if isinstance(block, Block)]

    # -- stages ------------------------------------------------------------------------------

    def encode(self, sources: Mapping[str, Tensor]) -> Memory:
        """The source's states, and the keys and values that each layer shows to the target."""
        mask = sources["attention_mask"].bool()
        states = self.embed(sources["input_ids"], segment=0)
        layers = []
        for block in self.blocks:
            keys_values = block.keys_values(states)
            states = block(states, keys_values, mask[:, None, None], reading=False)
            layers.append(keys_values)
        keys_values = torch.stack(layers, 1)  # [B, L, 2, heads, N, d / heads]
        return Memory(states, mask, {"layers": keys_values})

    def prior_of(self, memory: Memory) -> Normal:
        """The prior p(z|x) of each source, `[B, D]`."""
        return _normal(self.prior(self.pool(memory.states, memory.mask)))

    def posterior_of(self, sources: Mapping[str, Tensor], labels: Tensor) -> Normal:
        """The posterior q(z|x, y) of each pair, `[B, D]`: every position sees every other."""
        real = labels != IGNORED
        mask = torch.cat([sources["attention_mask"].bool(), real], 1)
        target = self.embed(labels.clamp(min=0), segment=1)
        states = torch.cat([self.embed(sources["input_ids"], segment=0), target], 1)
        for block in self.blocks:
            states = block(states, block.keys_values(states), mask[:, None, None], reading=True)
        return _normal(self.posterior(self.pool(states, mask)))

    def under(self, memory: Memory, z: Tensor) -> Memory:
        """The memory with one z for each row, `[R, D]`."""
        return Memory(memory.states, memory.mask, {**memory.extras, "z": z.to(memory.states.dtype)})

    def expected(self, memory: Memory) -> Memory:
        """The memory with the prior's mean."""
        return self.under(memory, self.prior_of(memory).mean)

    def sampled(self, memory: Memory, draws: Draws) -> Memory:
        """One z for each sample, drawn once from p(z|x) before the first word."""
        prior = self.prior_of(memory)
        one = torch.ones_like(memory.mask[:, :1])
        noise = draws.normal(one, self.config.latent_size)[:, :, 0]  # [S, B, D]
        z = prior.mean + math.sqrt(draws.spread) * prior.stddev * noise
        return self.under(memory.repeat(len(draws.numbers)), z.transpose(0, 1).flatten(0, 1))

    def executor(self, memory: Memory) -> Executor:
        """The decoder, ready to run over the rows of `memory`."""
        return TCVAEExecutor(self, memory)

    def elbo(
        self, sources: Mapping[str, Tensor], labels: Tensor, sample: bool | None = None
    ) -> ElboOutput:
        """The bound with one z of q.

        Args:
            sources: `input_ids` and `attention_mask`, `[B, N]`.
            labels: target words `[B, T]`, padding marked -100.
            sample: draw z from q (the default in training) or take its mean.
        """
        memory = self.encode(sources)
        p, q = self.prior_of(memory), self.posterior_of(sources, labels)
        z = q.rsample() if (self.training if sample is None else sample) else q.mean
        kl = kl_divergence(q, p)  # [B, D]
        return ElboOutput.of(
            self.nll(self.under(memory, z), labels),
            kl.sum(-1),
            labels,
            diagnose=lambda: {"active": float((kl.mean(0) > ACTIVE).sum())},
        )

    def nll(self, memory: Memory, labels: Tensor) -> Tensor:
        """-log p(y | x, z), summed over the words of each target, `[R]`."""
        real = labels != IGNORED
        start = torch.full_like(labels[:, :1], self.start_token)
        late = labels[:, :-1].masked_fill(~real[:, :-1], self.pad_token)
        states = self.embed(torch.cat([start, late], 1), segment=1)
        steps = labels.shape[1]
        before = torch.ones(steps, steps, dtype=torch.bool, device=labels.device).tril()
        mask = torch.cat(
            [
                memory.mask[:, None].expand(-1, steps, -1),
                before[None].expand(len(labels), -1, -1),
            ],
            -1,
        )[:, None]  # [R, 1, T, N + T]
        for block, source in zip(self.blocks, memory.extras["layers"].unbind(1), strict=True):
            keys_values = torch.cat([source, block.keys_values(states)], -2)
            states = block(states, keys_values, mask, reading=False)
        rows = real.nonzero()[:, 0]
        logits = self.logits(states[real], memory.extras["z"][rows])
        loss = F.cross_entropy(logits, labels[real], reduction="none")
        return loss.new_zeros(len(labels)).index_add(0, rows, loss)

    def embed(self, words: Tensor, segment: int, first: int = 0) -> Tensor:
        """[word; segment; position] of `[R, T]` words whose first stands at `first`, `[R, T, d]`.

        Positions count from the beginning of their segment, so that the source's padding is
        nowhere in the target.
        """
        vectors = self.words(words)
        side = self.config.side_size
        place = torch.arange(first, first + words.shape[1], device=words.device)
        position = sinusoids(place, side).to(vectors.dtype) * math.sqrt(side)
        parts = [
            vectors,
            self.segments.weight[segment].expand(*words.shape, -1),
            position.expand(*words.shape, -1),
        ]
        return self.dropout(self.enter(torch.cat(parts, -1)))

    def logits(self, states: Tensor, z: Tensor) -> Tensor:
        """The logits of the word after each state `[W, d]` under z `[W, D]`, `[W, V]`."""
        joined = torch.tanh(self.join(torch.cat([states, z], -1)))
        logits = self.output(joined)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


class Block(nn.Module):
    """Attention and feed-forward layer, each followed by addition and normalisation.

    The pass that gives the posterior (`reading`) has its own normalisation and shares the rest.
    """

    def __init__(self, config: TCVAEConfig) -> None:
        super().__init__()
        size = config.size
        self.heads = config.heads
        self.query = nn.Linear(size, size, bias=False)
        self.key_value = nn.Linear(size, 2 * size, bias=False)
        self.out = nn.Linear(size, size, bias=False)
        self.inner = nn.Linear(size, config.feed_forward)
        self.outer = nn.Linear(config.feed_forward, size)
        self.dropout = nn.Dropout(config.dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(4))

    def keys_values(self, states: Tensor) -> Tensor:
        """What others see of these states, `[R, 2, heads, T, d / heads]`."""
        both = self.key_value(states).unflatten(-1, (2, self.heads, -1))
        return both.permute(0, 2, 3, 1, 4)

    def forward(self, states: Tensor, keys_values: Tensor, mask: Tensor, reading: bool) -> Tensor:
        """States `[R, T, d]` that attend where the mask `[R, 1, T or 1, S]` is true."""
        after_attention, after_feed = self.norms[2 * reading], self.norms[2 * reading + 1]
        query = self.query(states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        keys, values = keys_values.unbind(1)
        seen = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        attended = self.out(seen.transpose(1, 2).flatten(2))
        states = after_attention(states + self.dropout(attended))
        fed = self.outer(F.relu(self.inner(states)))
        result: Tensor = after_feed(states + self.dropout(fed))
        return result


class Pool(nn.Module):
    """A sentence as one vector: attention with one learned query."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.wanted = nn.Parameter(torch.randn(size) / math.sqrt(size))
        self.query = nn.Linear(size, size, bias=False)
        self.key_value = nn.Linear(size, 2 * size, bias=False)
        self.out = nn.Linear(size, size, bias=False)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """States `[R, S, d]`, of which the mask `[R, S]` names the real ones, to `[R, d]`."""
        query = self.query(self.wanted).view(1, self.heads, 1, -1).expand(len(states), -1, -1, -1)
        both = self.key_value(states).unflatten(-1, (2, self.heads, -1))
        keys, values = both.permute(0, 2, 3, 1, 4).unbind(1)
        seen = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask[:, None, None])
        pooled: Tensor = self.out(seen.flatten(1))
        return pooled


class TCVAEExecutor:
    """The decoder behind `Executor`; each layer keeps the keys and values of what has been said."""

    def __init__(self, system: TCVAE, memory: Memory) -> None:
        self._system = system
        self._memory = memory
        self._source = torch.arange(len(memory), device=memory.states.device)
        heads, size = system.config.heads, system.config.size
        empty = memory.states.new_zeros(len(memory), 2, heads, 0, size // heads)
        self._said = [empty] * len(system.blocks)

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """Read one token per row: see `Executor.step`."""
        if parents is not None:
            self._continue(parents)
        system, memory = self._system, self._memory
        position = self._said[0].shape[-2]
        states = system.embed(tokens[:, None], segment=1, first=position)
        seen = memory.mask.new_ones(len(tokens), position + 1)
        mask = torch.cat([memory.mask, seen], 1)[:, None, None]
        layers = zip(system.blocks, memory.extras["layers"].unbind(1), strict=True)
        for layer, (block, source) in enumerate(layers):
            self._said[layer] = torch.cat([self._said[layer], block.keys_values(states)], -2)
            states = block(states, torch.cat([source, self._said[layer]], -2), mask, reading=False)
        return torch.cat([states[:, 0], memory.extras["z"]], -1)

    def logits(self, features: Tensor) -> Tensor:
        """The logits of the next word, `[R, V]`."""
        return self._system.logits(*features.split([self._system.config.size, self._latent], -1))

    @property
    def _latent(self) -> int:
        return int(self._system.config.latent_size)

    def _continue(self, parents: Tensor) -> None:
        self._said = [layer[parents] for layer in self._said]
        source = self._source[parents]
        if not torch.equal(source, self._source):
            self._memory = self._memory.select(parents)
            self._source = source


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """Sine and cosine of positions `[T]`, wavelengths from 2 pi to 10,000 * 2 pi, `[T, size]`."""
    wave = torch.arange(0, size, 2, device=positions.device) / size
    angles = positions[:, None] / 10_000**wave
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def _normal(parameters: Tensor) -> Normal:
    """N(mean, diag exp(log-variance)) of both halves, in float32 at least."""
    wide = parameters.to(torch.promote_types(parameters.dtype, torch.float32))
    mean, log_variance = wide.chunk(2, -1)
    return Normal(mean, (0.5 * log_variance).exp(), validate_args=False)


register(TCVAEConfig, TCVAE)
