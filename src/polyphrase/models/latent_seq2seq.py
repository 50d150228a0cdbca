"""An encoder-decoder with random context variables between its halves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from ..backbones.backbone import load_seq2seq
from ..backbones.executor import Executor, Rules
from ..backbones.huggingface import HuggingFaceBackbone
from ..backbones.memory import Memory
from ..data.codec import IGNORED
from ..errors import BadInput
from ..latent.config import LatentConfig
from ..latent.latent import Beliefs, Latent
from ..settings import from_mapping, to_mapping
from .adapters import LoraSettings, add_adapters
from .auto import register
from .config import PolyphraseConfig
from .injection import Injection
from .saving import SavedFolder


@dataclass
class ElboOutput:
    """One evidence lower bound per sentence, in nats.

    Attributes:
        loss: (sum of nll + sum of kl) / number of target tokens.
        nll: -log p(y | z) at one z, `[B]`.
        kl: KL[q(z|h) || p(z|h)], `[B]`; zeros without a latent.
        tokens: how many target tokens are real.
        beliefs: prior and posterior of the batch, `None` without a latent.
    """

    loss: Tensor
    nll: Tensor
    kl: Tensor
    tokens: Tensor
    beliefs: Beliefs | None = None


class LatentSeq2Seq(SavedFolder, PreTrainedModel, GenerationMixin):
    """p(y|x) = E_{p(z|h)} p(y | z, h), with h = f_enc(x): the paper's model (section 2).

    The deterministic model is the same code with no latent. Three stages, each usable alone:
    `encode` gives h, `beliefs` gives p(z|h) and q(z|h), `fuse` gives the memory for one z. The
    prior and the posterior only ever see h: `fuse` makes a new memory and leaves the old one.
    """

    config_class = PolyphraseConfig
    base_model_prefix = "backbone"
    main_input_name = "input_ids"

    def __init__(
        self,
        config: PolyphraseConfig,
        kernel: nn.Module | None = None,
        network: PreTrainedModel | None = None,
    ) -> None:
        super().__init__(config)
        if network is None:
            network = AutoModelForSeq2SeqLM.from_config(config.network_config)
        self.backbone = HuggingFaceBackbone(network)
        settings = config.latent_config
        self.latent: Latent | None = None
        self.injection: Injection | None = None
        if settings is not None:
            width = self.backbone.width
            self.latent = Latent(settings, width, kernel=kernel)
            self.injection = Injection(settings.injection, self.latent.dimension, width)
        if config.lora is not None:
            add_adapters(network, from_mapping(LoraSettings, config.lora, "config.json: lora"))
        self.generation_config = network.generation_config
        self.post_init()

    @classmethod
    def from_backbone(
        cls,
        name: str,
        latent: LatentConfig | None = None,
        lora: LoraSettings | None = None,
        kernel: nn.Module | None = None,
    ) -> "LatentSeq2Seq":
        """A pretrained backbone with a fresh latent: the model at step 0 of training.

        Args:
            name: `starter`, a hub id or a folder.
            latent: settings of the latent; `None` for the deterministic model.
            lora: train low-rank adapters and the latent only, and save nothing else.
            kernel: a gpytorch kernel, when `latent` asks for one.
        """
        network = load_seq2seq(name)
        config = PolyphraseConfig(
            backbone=network.config.to_dict(),
            latent=None if latent is None else to_mapping(latent),
            base=None if lora is None else name,
            lora=None if lora is None else to_mapping(lora),
        )
        return cls(config, kernel=kernel, network=network)

    @classmethod
    def from_config_and_base(cls, config: PolyphraseConfig, **kwargs: Any) -> "LatentSeq2Seq":
        """The model that a saved folder's weights are read into."""
        network = None if config.base is None else load_seq2seq(config.base)
        return cls(config, network=network, **kwargs)

    def init_weights(self) -> None:
        """Leave the weights alone: backbone, latent and injection each start themselves."""

    # -- stages ------------------------------------------------------------------------------

    def encode(self, sources: Mapping[str, Tensor]) -> Memory:
        """H = f_enc(x), `[B, N, D_h]`."""
        return self.backbone.encode(sources)

    def beliefs(self, memory: Memory) -> Beliefs | None:
        """p(z|h) and q(z|h) of each source; `None` for the deterministic model."""
        return None if self.latent is None else self.latent(memory.states, memory.mask)

    def fuse(self, memory: Memory, z: Tensor) -> Memory:
        """The memory that the decoder sees for one z per row `[R, N, D]`."""
        if self.injection is None:
            raise TypeError("a deterministic model has no z to fuse")
        z = z.to(memory.states.dtype)
        return memory.with_states(self.injection(z, memory.states))

    def nll(self, memory: Memory, labels: Tensor) -> Tensor:
        """-log p(y | memory) of each row, `[R]`."""
        return self.backbone.nll(memory, labels)

    def executor(self, memory: Memory) -> Executor:
        """The decoder, ready to run over the rows of `memory`."""
        return self.backbone.executor(memory)

    def elbo(
        self, sources: Mapping[str, Tensor], labels: Tensor, sample: bool | None = None
    ) -> ElboOutput:
        """The two parts of the bound of eq. (6), per sentence.

        Args:
            sources: `input_ids` and `attention_mask`, `[B, N]`.
            labels: target words `[B, T]`, padding marked -100.
            sample: draw z from q with torch's own generator (the default in training), or take its
                mean (the default in evaluation).
        """
        memory = self.encode(sources)
        beliefs = self.beliefs(memory)
        kl = memory.states.new_zeros(len(memory), dtype=torch.float32)
        if beliefs is not None:
            mean = beliefs.mean
            z = mean
            if self.training if sample is None else sample:
                z = beliefs.sample(torch.randn_like(mean, dtype=torch.float32))
            kl = beliefs.kl(z)
            memory = self.fuse(memory, z)
        nll = self.nll(memory, labels)
        tokens = (labels != IGNORED).sum()
        loss = (nll.sum() + kl.sum()) / tokens
        return ElboOutput(loss=loss, nll=nll, kl=kl, tokens=tokens, beliefs=beliefs)

    # -- words -------------------------------------------------------------------------------

    @property
    def start_token(self) -> int:
        """The token that the decoder reads first."""
        return self._token("decoder_start_token_id", "bos_token_id")

    @property
    def pad_token(self) -> int:
        """The token after the end of an output."""
        return self._token("pad_token_id", "eos_token_id")

    @property
    def rules(self) -> Rules:
        """What this family never or always says."""
        settings = self.generation_config
        banned = [words[0] for words in settings.bad_words_ids or () if len(words) == 1]
        return Rules(
            end=self._token("eos_token_id"),
            first=settings.forced_bos_token_id,
            last=settings.forced_eos_token_id,
            forbidden=tuple({*banned, *(settings.suppress_tokens or ())}),
        )

    def _token(self, *names: str) -> int:
        config = self.backbone.config
        for name in names:
            for source in (self.generation_config, config, getattr(config, "decoder", None)):
                value = getattr(source, name, None)
                if isinstance(value, list):
                    value = value[0]
                if value is not None:
                    return int(value)
        raise BadInput(f"the model's configuration has no {names[0]}: set it and save the model")

    # -- what Hugging Face's tools call --------------------------------------------------------

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        decoder_input_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> ElboOutput | Seq2SeqLMOutput:
        """The bound when `labels` are given; otherwise the decoder's step at the posterior mean.

        `encoder_outputs`, when given, is the memory that the decoder sees (z is in it already).
        """
        if labels is not None:
            if input_ids is None:
                raise TypeError("labels need input_ids beside them")
            if attention_mask is None:
                attention_mask = torch.ones_like(input_ids)
            return self.elbo({"input_ids": input_ids, "attention_mask": attention_mask}, labels)
        if encoder_outputs is None:
            if input_ids is None:
                raise TypeError("give input_ids or encoder_outputs")
            encoder_outputs = self.get_encoder()(input_ids, attention_mask)
        return self.backbone.network(
            encoder_outputs=encoder_outputs,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            **kwargs,
        )

    def get_encoder(self, modality: str | None = None) -> "MeanEncoder":
        """The encoder as `generate` sees it: the memory at the posterior mean."""
        return MeanEncoder(self)

    def get_input_embeddings(self) -> nn.Module:
        """The network's word embeddings."""
        return self.backbone.network.get_input_embeddings()

    def get_output_embeddings(self) -> nn.Module:
        """The network's output layer."""
        return self.backbone.network.get_output_embeddings()

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Labels shifted right, as the network wants them."""
        return self.backbone.network.prepare_decoder_input_ids_from_labels(labels)


class MeanEncoder:
    """x -> the memory at the posterior mean, in the shape that `generate` asks of an encoder."""

    def __init__(self, model: LatentSeq2Seq) -> None:
        self._model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> BaseModelOutput:
        """The fused states, `[B, N, D_h]`."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        memory = self._model.encode({"input_ids": input_ids, "attention_mask": attention_mask})
        beliefs = self._model.beliefs(memory)
        if beliefs is not None:
            memory = self._model.fuse(memory, beliefs.mean)
        return BaseModelOutput(last_hidden_state=memory.states)

    __call__ = forward


register(PolyphraseConfig, LatentSeq2Seq)
