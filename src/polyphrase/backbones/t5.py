"""A fast executor for the decoders of T5, flan-T5 and mT5."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..data.codec import IGNORED
from .lean import VocabularyLoss
from .memory import Memory
from .packed import Activation, Product

# By name: to import the classes is slow, and circular while transformers itself is being imported.
_FAMILIES = ("T5ForConditionalGeneration", "MT5ForConditionalGeneration")
_ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu_new": "gelu"}
_ROOM = 4  # steps between two searches for slots that nobody needs any more


@dataclass(frozen=True)
class _Layer:
    """The products of one decoder layer; each reads normalised states."""

    self_qkv: Product
    self_out: Product
    cross_query: Product
    cross_out: Product
    inner: Product
    gate: Product | None
    outer: Product


def is_t5(network: Any) -> bool:
    """Whether a network is one of those whose decoder and output layer are known here."""
    head = getattr(network, "lm_head", None)
    return type(network).__name__ in _FAMILIES and type(head) is nn.Linear and head.bias is None


def word_losses(network: Any, memory: Memory, inputs: Tensor, labels: Tensor) -> Tensor:
    """-log p of each word that is not padding, in the order of `labels[labels != IGNORED]`.

    Only these words' states reach the output layer: it is half of the products of a small model.

    Args:
        network: a network that `is_t5`.
        memory: what the decoder attends to.
        inputs: the words that the decoder reads, `[B, T]`.
        labels: the words it should say, `[B, T]`.
    """
    states = network.decoder(
        input_ids=inputs,
        encoder_hidden_states=memory.states,
        encoder_attention_mask=memory.mask.to(torch.long),
        use_cache=False,
    ).last_hidden_state
    real = (labels != IGNORED).flatten().nonzero()[:, 0]
    states = states.flatten(0, 1).index_select(0, real)
    if network.config.scale_decoder_outputs:
        states = states * network.config.d_model**-0.5
    weight = network.lm_head.weight
    if torch.is_autocast_enabled(states.device.type):
        dtype = torch.get_autocast_dtype(states.device.type)
        states, weight = states.to(dtype), weight.to(dtype)
    return VocabularyLoss.apply(states, weight, labels.flatten()[real])


class T5Decoder:
    """The weights of a T5 decoder, rearranged once so that a step has few and large products.

    - x / rms(x) ∘ g, times Wᵀ, is x / rms(x) times (W diag(g))ᵀ: norm weights go into the products.
    - Queries, keys and values of a word are one product; keys and values that all layers have of
      the memory are another.

    Shapes: S memory rows, K hypotheses of each, R = S K, N source positions, L layers, H heads of
    size d, D the width of the states, V words.

    Args:
        network: a network that `fits`.
        dtype: the number format of the products; sums, norms and softmax are in float32 at least.
    """

    def __init__(self, network: PreTrainedModel, dtype: torch.dtype) -> None:
        config, decoder = network.config, network.decoder
        self.layers = config.num_decoder_layers
        self.heads, self.size = config.num_heads, config.d_kv
        self.dtype = dtype
        self.wide = torch.promote_types(dtype, torch.float32)
        self._epsilon = config.layer_norm_epsilon
        self._embedding = decoder.embed_tokens.weight.detach().to(self.wide)
        activation = _ACTIVATIONS[config.dense_act_fn]
        self._layers: list[_Layer] = []
        memory_weights = []
        for block in decoder.block:
            own, cross, feed = block.layer
            ahead, over = own.SelfAttention, cross.EncDecAttention
            dense = feed.DenseReluDense
            first = dense.wi_0 if config.is_gated_act else dense.wi
            self._layers.append(
                _Layer(
                    self._product(own.layer_norm, ahead.q, ahead.k, ahead.v),
                    self._product(None, ahead.o),
                    self._product(cross.layer_norm, over.q),
                    self._product(None, over.o),
                    self._product(feed.layer_norm, first, activation=activation),
                    self._product(feed.layer_norm, dense.wi_1) if config.is_gated_act else None,
                    self._product(None, dense.wo),
                )
            )
            memory_weights += [over.k, over.v]
        self._memory = self._product(None, *memory_weights)
        scale = config.d_model**-0.5 if config.scale_decoder_outputs else 1.0
        self._head = self._product(decoder.final_layer_norm, network.lm_head, scale=scale)
        # The attention's preference for each distance; from `max_distance` on they are all alike.
        distances = config.relative_attention_max_distance + 1
        attention = decoder.block[0].layer[0].SelfAttention
        with torch.no_grad():
            bias = attention.compute_bias(distances, distances)[0, :, -1].flip(-1)
        self._bias = bias.to(self.wide).contiguous()  # [H, distance]

    @staticmethod
    def fits(network: Any) -> bool:
        """Whether a network is such a decoder, with plain weights only."""
        return (
            is_t5(network)
            and network.config.dense_act_fn in _ACTIVATIONS
            and all(
                type(module) is nn.Linear
                for name, module in network.decoder.named_modules()
                if name.rpartition(".")[2] in ("q", "k", "v", "o", "wi", "wi_0", "wi_1", "wo")
            )
        )

    def _product(
        self,
        norm: Any,
        *linears: Any,
        activation: Activation = "none",
        scale: float = 1.0,
    ) -> Product:
        """Several layers that read the same states as one product, the states' norm folded in."""
        weight = torch.cat([linear.weight.detach().to(self.wide) for linear in linears])
        if norm is not None:
            weight *= norm.weight.detach().to(self.wide) * scale
        return Product(weight, self.dtype, activation)

    def embed(self, tokens: Tensor) -> Tensor:
        """The states that a step starts with, `[R]` to `[R, D]`."""
        return self._embedding[tokens]

    def normalise(self, states: Tensor) -> Tensor:
        """States over their root mean square, `[R, D]`."""
        return F.rms_norm(states, states.shape[-1:], None, self._epsilon).to(self.dtype)

    def attention_bias(self, distance: Tensor) -> Tensor:
        """What a query adds to its score of each slot: -inf where the distance is negative.

        Args:
            distance: how many words ago a slot was read, `[S, K, E]`.

        Returns:
            `[S, H, K, E]`.
        """
        table = F.pad(self._bias, (1, 0), value=-torch.inf)  # a column for negative distances
        index = distance.clamp(-1, self._bias.shape[1] - 1) + 1
        return table[:, index].transpose(0, 1)

    def logits(self, features: Tensor) -> Tensor:
        """`[R, D]` to `[R, V]`."""
        return self._head(features)

    def read(self, memory: Memory) -> "_Source":
        """Keys and values of a memory for all layers."""
        rows, positions, width = memory.states.shape
        states = memory.states.reshape(-1, width).to(self.dtype)
        both = self._memory(states).view(rows, positions, self.layers, 2, self.heads, self.size)
        keys, values = both.permute(3, 2, 0, 4, 1, 5).contiguous()
        bias = torch.zeros(memory.mask.shape, dtype=self.wide, device=states.device)
        bias.masked_fill_(~memory.mask, -torch.inf)
        return _Source(keys, values, bias[:, None, None])

    def step(self, tokens: Tensor, past: "_Past", source: "_Source") -> Tensor:
        """One word of each hypothesis, `[S, K]` tokens to `[R, D]` features.

        The words' own slots in `past` are reserved already.
        """
        bias = self.attention_bias(past.distance())  # [S, H, K, E]
        states = self.embed(tokens.flatten())  # [R, D]
        for index, layer in enumerate(self._layers):
            projected = layer.self_qkv(self.normalise(states))
            query, key, value = self._split(projected, tokens.shape, 3)
            keys, values = past.write(index, key, value)
            states = states + layer.self_out(self._join(_attend(query, keys, values, bias)))
            (query,) = self._split(layer.cross_query(self.normalise(states)), tokens.shape, 1)
            found = _attend(query, source.keys[index], source.values[index], source.bias)
            states = states + layer.cross_out(self._join(found))
            normal = self.normalise(states)
            inner = layer.inner(normal)
            if layer.gate is not None:
                inner = layer.gate.times(normal, inner)
            states = states + layer.outer(inner)
        return self.normalise(states)

    def _split(self, projected: Tensor, shape: torch.Size, parts: int) -> tuple[Tensor, ...]:
        """`[R, parts H d]` to `parts` times `[S, H, K, d]`."""
        heads = projected.view(*shape, parts, self.heads, self.size)
        return heads.permute(2, 0, 3, 1, 4).unbind(0)

    def _join(self, attended: Tensor) -> Tensor:
        """`[S, H, K, d]` to `[R, H d]`."""
        return attended.transpose(1, 2).reshape(-1, self.heads * self.size)


def _attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """softmax(Q Kᵀ + bias) V, unscaled as in T5: `[S, H, K, d]` over `[S, H, E, d]`."""
    scores = query @ keys.transpose(2, 3) + bias  # the bias, and so the softmax, is wide
    return scores.softmax(-1).to(values.dtype) @ values


@dataclass(frozen=True)
class _Source:
    """Keys and values of the memory, `[L, S, H, N, d]`; 0 at real positions, or -inf."""

    keys: Tensor
    values: Tensor
    bias: Tensor

    def select(self, rows: Tensor) -> "_Source":
        """Some rows of the memory."""
        keys, values = (part.index_select(1, rows) for part in (self.keys, self.values))
        return _Source(keys, values, self.bias[rows])


class _Past:
    """Keys and values of the words read so far, in slots that are never reordered.

    Each row of the memory has E slots, and each hypothesis fills one at a step. Which slots hold
    the words of a hypothesis is a list of integers: when hypotheses branch or change places, their
    lists do, and keys and values stay. Hypotheses share what they have in common, so slots that are
    in no list any more outnumber the others soon; they are given up every `_ROOM` steps. Attention
    reads all slots, those that nobody has filled too, since products of part of a tensor would copy
    it first: what stands in them is finite, and their weight is 0.

    Attributes:
        keys, values: `[L, S, H, E, d]`, the first `used` slots filled.
        words: the slots of each hypothesis, oldest word first, `[S, K, t]`.
    """

    def __init__(self, rows: int, decoder: T5Decoder, device: torch.device) -> None:
        shape = (decoder.layers, rows, decoder.heads, 0, decoder.size)
        self.keys = torch.empty(shape, dtype=decoder.dtype, device=device)
        self.values = torch.empty(shape, dtype=decoder.dtype, device=device)
        self.words = torch.empty(rows, 1, 0, dtype=torch.long, device=device)
        self.used = 0

    def follow(self, parents: Tensor, rows: Tensor | None) -> None:
        """Continue some of the hypotheses.

        Args:
            parents: which, `[R]` of all S K.
            rows: the memory row of each new row, when they are not the same as before.
        """
        count = len(self.words) if rows is None else len(rows)
        length = self.words.shape[-1]
        self.words = self.words.flatten(0, 1)[parents].view(count, -1, length)
        if rows is not None:
            self._move(rows)

    def reserve(self) -> None:
        """Give each hypothesis a slot for its next word."""
        rows, width, _ = self.words.shape
        device = self.words.device
        if self.used + width > self.keys.shape[3]:
            self._move(torch.arange(rows, device=device))
        self._new = slice(self.used, self.used + width)
        own = torch.arange(self.used, self.used + width, device=device)
        self.words = torch.cat([self.words, own.expand(rows, width)[..., None]], -1)
        self.used += width

    def _move(self, rows: Tensor) -> None:
        """Move the slots that are in a list to the front of new rows, with room behind them.

        Args:
            rows: the old row of each new row, whose lists `words` holds already, `[S]`.
        """
        room = self.words.shape[1] * _ROOM
        lists = self.words.flatten(1)
        needed = torch.zeros(len(rows), self.used, dtype=torch.int8, device=rows.device)
        needed.scatter_(1, lists, 1)
        count = int(needed.sum(1, dtype=torch.long).max()) if self.used else 0
        kept = needed.argsort(dim=1, descending=True, stable=True)[:, :count]  # [S, E']
        self.words = (needed.cumsum(1) - 1).gather(1, lists).view_as(self.words)
        layers, old_rows, heads, slots, size = self.keys.shape
        shape = (layers, len(rows), heads, count + room, size)
        self.used = count
        if not slots:
            self.keys, self.values = self.keys.new_zeros(shape), self.values.new_zeros(shape)
            return
        head = torch.arange(layers * old_rows * heads, device=rows.device)
        head = head.view(layers, old_rows, heads)[:, rows]  # [L, S, H]
        kept = F.pad(kept, (0, room))  # any slot: nobody has filled the new ones yet
        index = (head[..., None] * slots + kept[:, None]).flatten()
        for name in ("keys", "values"):
            old = getattr(self, name).view(-1, size)
            setattr(self, name, old.index_select(0, index).view(shape))

    def distance(self) -> Tensor:
        """How many words ago each hypothesis read each slot, -1 where never: `[S, K, E]`."""
        rows, width, length = self.words.shape
        slots = self.keys.shape[3]
        distance = torch.full((rows, width, slots), -1, device=self.words.device)
        ago = torch.arange(length - 1, -1, -1, device=self.words.device)
        return distance.scatter_(2, self.words, ago.expand_as(self.words))

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Fill the reserved slots of a layer with `[S, H, K, d]`; returns all slots."""
        self.keys[layer, :, :, self._new] = key
        self.values[layer, :, :, self._new] = value
        return self.keys[layer], self.values[layer]


class T5Executor:
    """A `T5Decoder` over one memory, behind `Executor`.

    The rows of a step are thought of as K hypotheses of each of S memory rows, so that the memory's
    keys are multiplied with K queries at once.
    """

    def __init__(self, decoder: T5Decoder, memory: Memory) -> None:
        self._decoder = decoder
        self._source = decoder.read(memory)
        self._past = _Past(len(memory), decoder, memory.states.device)

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """Read one token per row: see `Executor.step`."""
        if parents is not None:
            self._continue(parents)
        self._past.reserve()
        shape = self._past.words.shape[:2]
        return self._decoder.step(tokens.view(shape), self._past, self._source)

    def logits(self, features: Tensor) -> Tensor:
        """The words' logits: see `Executor.logits`."""
        return self._decoder.logits(features)

    def _continue(self, parents: Tensor) -> None:
        rows, width = self._past.words.shape[:2]
        row = parents // width  # of the memory, for each hypothesis
        same = torch.arange(rows, device=row.device).repeat_interleave(len(row) // rows)
        if torch.equal(row, same):
            self._past.follow(parents, None)
            return
        kept, counts = row.unique_consecutive(return_counts=True)
        if bool((counts != counts[0]).any()):  # no common K: each hypothesis has its own memory
            kept = row
        self._past.follow(parents, kept)
        self._source = self._source.select(kept)
