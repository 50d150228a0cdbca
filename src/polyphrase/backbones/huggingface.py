"""Any Hugging Face encoder-decoder as a backbone: no class of ours per family."""

from collections.abc import Mapping
from threading import Lock
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoModelForSeq2SeqLM,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from ..data.codec import IGNORED, TokenizerCodec
from .backbone import load_tokenizer
from .executor import Executor
from .memory import Memory
from .t5 import T5Decoder, T5Executor, is_t5, word_losses

_ARRANGING = Lock()  # several threads may decode with one model


class HuggingFaceBackbone(nn.Module):
    """A `PreTrainedModel` with encoder, decoder and language-model head.

    T5, flan-T5, mT5, BART, mBART, Pegasus, Marian and `EncoderDecoderModel` all answer to the same
    few calls, which is all that is used here.

    Attributes:
        precision: the number format in which words are searched for, where an executor has a
            choice; `None` is that of the weights.
    """

    def __init__(self, network: PreTrainedModel) -> None:
        super().__init__()
        self.network = network
        self.precision: torch.dtype | None = None
        self._fast: tuple[object, T5Decoder] | None = None

    @classmethod
    def from_config(cls, config: PretrainedConfig) -> "HuggingFaceBackbone":
        """A backbone with fresh weights."""
        network = AutoModelForSeq2SeqLM.from_config(config)
        network.tie_weights()  # transformers leaves it out where no weights are to be started
        return cls(network)

    @property
    def config(self) -> PretrainedConfig:
        """The network's own configuration."""
        return self.network.config

    @property
    def width(self) -> int:
        """D_h, the size of an encoder state."""
        return int(self.network.get_encoder().config.hidden_size)

    @property
    def max_source_length(self) -> int | None:
        """The longest source that the encoder's positions can tell apart, if there is a limit."""
        limit = getattr(self.network.get_encoder().config, "max_position_embeddings", None)
        return int(limit) if limit else None

    @property
    def generation_config(self) -> GenerationConfig:
        """The family's special tokens and what it forbids."""
        return self.network.generation_config

    @property
    def input_embeddings(self) -> nn.Module:
        """The word embeddings."""
        return self.network.get_input_embeddings()

    @property
    def output_embeddings(self) -> nn.Module:
        """The output layer."""
        return self.network.get_output_embeddings()

    def codec(self, name: str, max_length: int | None = None) -> TokenizerCodec:
        """The tokenizer of a folder or hub id, cutting where the encoder's positions end."""
        limit = min(filter(None, (max_length, self.max_source_length)), default=None)
        return TokenizerCodec(load_tokenizer(name), limit, limit)

    def losses(self, memory: Memory, labels: Tensor) -> tuple[Tensor, None]:
        """`nll`, and nothing that training pays for beside it."""
        return self.nll(memory, labels), None

    def encode(self, sources: Mapping[str, Tensor]) -> Memory:
        """H = f_enc(x): the encoder's last hidden states, `[B, N, D_h]`."""
        mask = sources["attention_mask"]
        output = self.network.get_encoder()(
            input_ids=sources["input_ids"], attention_mask=mask, return_dict=True
        )
        return Memory(output.last_hidden_state, mask.bool())

    def nll(self, memory: Memory, labels: Tensor) -> Tensor:
        """-log p(y | memory), summed over the words of each target, `[B]`.

        Args:
            memory: what the decoder attends to.
            labels: target words, `[B, T]`, padding marked by `IGNORED`.
        """
        inputs = self.network.prepare_decoder_input_ids_from_labels(labels)
        if is_t5(self.network):
            losses = word_losses(self.network, memory, inputs, labels)
            where = (labels != IGNORED).nonzero()[:, 0]
            return losses.new_zeros(len(labels)).index_add(0, where, losses)  # [B]
        output = self.network(
            encoder_outputs=BaseModelOutput(last_hidden_state=memory.states),
            attention_mask=memory.mask.to(torch.long),
            decoder_input_ids=inputs,
            use_cache=False,
        )
        logits = output.logits
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="none"
        )
        return loss.view_as(labels).sum(-1)  # [B]

    def executor(self, memory: Memory) -> Executor:
        """A decoder ready to run over the rows of `memory`, the fastest that knows its family."""
        differs = self.network.training or torch.is_grad_enabled()
        if differs or not T5Decoder.fits(self.network):
            return HuggingFaceExecutor(self.network, memory)
        return T5Executor(self._rearranged(), memory)

    def _rearranged(self) -> T5Decoder:
        """The decoder's weights in the order that is fast, kept until one of them changes."""
        parameters = [*self.network.decoder.parameters(), *self.network.lm_head.parameters()]
        state = (self.precision, *map(_state, parameters))
        with _ARRANGING:
            if self._fast is None or self._fast[0] != state:
                self._fast = state, T5Decoder(self.network, self.precision or parameters[0].dtype)
            return self._fast[1]

    def train(self, mode: bool = True) -> Self:
        """Change to training, or back; the weights of the fast decoder are let go."""
        self._fast = None
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the rearranged weights: copies make their own."""
        return {**super().__getstate__(), "_fast": None}


def _state(weight: Tensor) -> tuple[int, int]:
    """What differs when a weight has been replaced or written to."""
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version


class HuggingFaceExecutor:
    """The network's own decoder and cache behind `Executor`.

    Keys and values of the memory are computed at the first step, once for each of its rows, and
    copied only when rows branch or end.
    """

    def __init__(self, network: PreTrainedModel, memory: Memory) -> None:
        self._network = network
        self._memory = memory
        self._source = torch.arange(len(memory), device=memory.states.device)
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """Read one token per row: see `Executor.step`."""
        if parents is not None:
            self._continue(parents)
        output = self._network(
            encoder_outputs=BaseModelOutput(last_hidden_state=self._memory.states),
            attention_mask=self._memory.mask.to(torch.long),
            decoder_input_ids=tokens[:, None],
            past_key_values=self._cache,
            use_cache=True,
        )
        self._cache = output.past_key_values
        return output.logits[:, -1]

    def logits(self, features: Tensor) -> Tensor:
        """The logits that the network gave."""
        return features

    def _continue(self, parents: Tensor) -> None:
        self._cache.self_attention_cache.reorder_cache(parents)
        source = self._source[parents]
        if not torch.equal(source, self._source):
            self._cache.cross_attention_cache.reorder_cache(parents)
            self._memory = self._memory.select(parents)
            self._source = source
