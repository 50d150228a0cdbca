"""An encoder-decoder with random context variables between its halves."""

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from ..backbones.backbone import STARTER, is_local, load_seq2seq
from ..backbones.executor import Executor, Rules
from ..backbones.huggingface import HuggingFaceBackbone
from ..backbones.memory import Memory
from ..backbones.pointer_generator import PointerGenerator, PointerGeneratorConfig
from ..data.codec import Codec
from ..errors import BadInput
from ..latent.beliefs import Beliefs
from ..latent.config import LatentConfig
from ..latent.latent import Latent
from ..settings import from_mapping, to_mapping
from .adapters import LoraSettings, add_adapters, split_adapters
from .auto import register
from .config import PolyphraseConfig
from .injection import Injection
from .saving import WEIGHTS, SavedModel, assign, local_folder, read_weights
from .system import Draws, ElboOutput


class LatentSeq2Seq(SavedModel, GenerationMixin):
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
        self.backbone = _backbone(config.network_config, network)
        settings = config.latent_config
        self.latent: Latent | None = None
        self.injection: Injection | None = None
        if settings is not None:
            width = self.backbone.width
            self.latent = Latent(settings, width, kernel=kernel)
            config.latent = to_mapping(self.latent.config)  # a kernel object by its structure
            self.injection = Injection(settings.injection, self.latent.dimension, width)
        if config.lora is not None:
            lora = from_mapping(LoraSettings, config.lora, "config.json: lora")
            add_adapters(self.hugging_face.network, lora)
        self.generation_config = self.backbone.generation_config
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
        if isinstance(network, SavedModel):
            raise BadInput(
                f"{name} is a trained model already: give the backbone that it was made from, "
                "or --resume its own run"
            )
        config = PolyphraseConfig(
            backbone=_described(network.config, name),
            latent=None if latent is None else to_mapping(latent),
            base=None if lora is None else name,
            lora=None if lora is None else to_mapping(lora),
        )
        return cls(config, kernel=kernel, network=network)

    @classmethod
    def from_scratch(
        cls, backbone: PretrainedConfig, latent: LatentConfig | None = None, **kwargs: Any
    ) -> "LatentSeq2Seq":
        """A backbone with fresh weights, and a fresh latent."""
        settings = None if latent is None else to_mapping(latent)
        return cls(
            PolyphraseConfig(backbone=_without_paths(backbone.to_dict()), latent=settings), **kwargs
        )

    @classmethod
    def from_config_and_base(cls, config: PolyphraseConfig, **kwargs: Any) -> "LatentSeq2Seq":
        """The model that a saved folder's weights are read into."""
        network = None if config.base is None else load_seq2seq(config.base)
        return cls(config, network=network, **kwargs)

    @classmethod
    def merged(cls, name: str, config: PolyphraseConfig) -> "LatentSeq2Seq":
        """A saved model whose adapters are added to the weights that they adapt.

        The same function in fewer products, and without peft.

        Args:
            name: the folder, or a name on the hub.
            config: what its `config.json` says.
        """
        folder = local_folder(name, {})
        lora = from_mapping(LoraSettings, config.lora or {}, "config.json: lora")
        changes, rest = split_adapters(read_weights(folder / WEIGHTS), lora)
        whole = copy.deepcopy(config)
        whole.lora = whole.base = None
        with no_init_weights():
            model = cls(whole, network=None if config.base is None else load_seq2seq(config.base))
        adapted = dict(model.named_parameters())
        if unknown := changes.keys() - adapted.keys():
            raise BadInput(
                f"{folder / WEIGHTS} does not fit its config.json: "
                f"it adapts {min(unknown)}, which is not there"
            )
        model.backbone.requires_grad_(False)
        with torch.no_grad():
            for weight, change in changes.items():
                adapted[weight].add_(change)
        assign(model, rest, partial=True, where=folder / WEIGHTS)
        model.read_generation_config(folder)
        return model.requires_grad_(True).eval()

    def init_weights(self) -> None:
        """Leave the weights alone: backbone, latent and injection each start themselves."""

    def codec(self, name: str, max_length: int | None = None) -> Codec:
        """The vocabulary that lies in a saved folder, or that a pretrained backbone comes with.

        Args:
            name: the folder or the backbone.
            max_length: the longest source and target, in tokens.
        """
        return self.backbone.codec(name, max_length)

    @property
    def hugging_face(self) -> HuggingFaceBackbone:
        """The backbone, where what is asked for exists in Hugging Face's networks only."""
        if not isinstance(self.backbone, HuggingFaceBackbone):
            raise BadInput(
                f"a {self.backbone.config.model_type} has no Hugging Face network inside: load it "
                "with polyphrase.load, and train it whole"
            )
        return self.backbone

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

    @property
    def has_latent(self) -> bool:
        """Whether there is a z."""
        return self.latent is not None

    def expected(self, memory: Memory) -> Memory:
        """The memory at the posterior mean; the deterministic model's is what it is."""
        beliefs = self.beliefs(memory)
        return memory if beliefs is None else self.fuse(memory, beliefs.mean)

    def sampled(self, memory: Memory, draws: Draws) -> Memory:
        """One z of its own for each sample: see `System.sampled`."""
        beliefs = self.beliefs(memory)
        if beliefs is None:
            raise TypeError("a deterministic model has no z to draw")
        noise = draws.normal(memory.mask, beliefs.mean.shape[-1])
        z = beliefs.sample(noise, draws.spread)  # [S, B, N, D]
        return self.fuse(memory.repeat(len(draws.numbers)), z.transpose(0, 1).flatten(0, 1))

    def nll(self, memory: Memory, labels: Tensor) -> Tensor:
        """-log p(y | memory) of each row, `[R]`."""
        return self.backbone.nll(memory, labels)

    def executor(self, memory: Memory) -> Executor:
        """The decoder, ready to run over the rows of `memory`."""
        return self.backbone.executor(memory)

    def elbo(
        self, sources: Mapping[str, Tensor], labels: Tensor, sample: bool | None = None
    ) -> ElboOutput:
        """The two parts of the bound of eq. (13), per sentence.

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
            drawn = beliefs.sample(torch.randn_like(mean, dtype=torch.float32))
            # A KL without closed form is estimated at the draw: at the mean it would be biased.
            kl = beliefs.kl(drawn)
            at_mean = not (self.training if sample is None else sample)
            memory = self.fuse(memory, mean if at_mean else drawn)
        nll, penalty = self.backbone.losses(memory, labels)
        diagnose = None if beliefs is None else partial(_diagnosis, beliefs)
        return ElboOutput.of(nll, kl, labels, diagnose, penalty)

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
        return self.hugging_face.network(
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
        return self.backbone.input_embeddings

    def get_output_embeddings(self) -> nn.Module:
        """The network's output layer."""
        return self.backbone.output_embeddings

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Labels shifted right, as the network wants them."""
        return self.hugging_face.network.prepare_decoder_input_ids_from_labels(labels)


def _backbone(
    config: PretrainedConfig, network: PreTrainedModel | None
) -> HuggingFaceBackbone | PointerGenerator:
    if isinstance(config, PointerGeneratorConfig):
        return PointerGenerator(config)
    if network is None:
        return HuggingFaceBackbone.from_config(config)
    return HuggingFaceBackbone(network)


def _described(config: PretrainedConfig, name: str) -> dict[str, Any]:
    """A network's configuration, which names where it came from only if that is no local path."""
    values = _without_paths(config.to_dict())
    return values if is_local(name) and name != STARTER else {**values, "_name_or_path": name}


def _without_paths(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_paths(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if key != "_name_or_path"
    }


def _diagnosis(beliefs: Beliefs) -> dict[str, float]:
    return {
        "kl_floor": float(beliefs.floor().mean()),
        "active": float(beliefs.active().sum()),
        "correlation": beliefs.correlation(),
    }


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
        return BaseModelOutput(last_hidden_state=self._model.expected(memory).states)

    __call__ = forward


register(PolyphraseConfig, LatentSeq2Seq)
