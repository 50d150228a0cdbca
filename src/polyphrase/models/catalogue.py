"""Every network and system that is built here, by name and by configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig

from ..backbones.backbone import load_config, resolve
from ..backbones.pointer_generator import PointerGeneratorConfig
from ..data.codec import Codec
from ..data.vocabulary import Vocabulary, VocabularyCodec
from ..errors import BadInput
from ..latent.config import LatentConfig
from .config import PolyphraseConfig
from .copy_source import CopySource
from .latent_seq2seq import LatentSeq2Seq
from .multi_selectors import MultiSelectors
from .t_cvae import TCVAE
from .variation_attention import VariationAttention
from .word_system import WordSystem

AnySystem = LatentSeq2Seq | WordSystem

BASELINES: dict[str, type[WordSystem]] = {
    "variation-attention": VariationAttention,
    "multi-selectors": MultiSelectors,
    "t-cvae": TCVAE,
    "copy-source": CopySource,
}
"""Systems with a latent, if any, of their own."""

FROM_SCRATCH = (PointerGeneratorConfig.model_type, *BASELINES)
"""What is trained from nothing, with a vocabulary made from the training pairs."""


@dataclass(frozen=True)
class Built:
    """A system and its vocabulary."""

    model: AnySystem
    codec: Codec


def build(
    name: str,
    sizes: Mapping[str, Any],
    latent: LatentConfig | None,
    words: Vocabulary,
    max_length: int | None = None,
) -> Built:
    """A system with fresh weights.

    Args:
        name: one of `FROM_SCRATCH`.
        sizes: what differs from the published sizes, by the names of the system's configuration.
        latent: of the pointer-generator.
        words: the vocabulary.
        max_length: of a source or target, in words.
    """
    if name in BASELINES:
        kind = BASELINES[name]
        if latent is not None:
            raise BadInput(
                f"{name} has no room for a latent of another kind: leave out --prior, or take the "
                "backbone pointer-generator"
            )
        config = _configured(kind.config_class, name, sizes, len(words))
        return Built(kind(config), kind.codec_for(words, max_length))
    backbone = _configured(PointerGeneratorConfig, name, sizes, len(words))
    model = LatentSeq2Seq.from_scratch(backbone, latent)
    return Built(model, VocabularyCodec(words, max_length))


def load(name: str) -> Built:
    """A saved system, or a pretrained encoder-decoder as it is, without a latent.

    Args:
        name: a folder or a name on the hub.
    """
    config = load_config(name)
    folder = resolve(name)
    baseline = BASELINES.get(config.model_type)
    if baseline is not None:
        system = baseline.from_pretrained(folder, config=config)
        return Built(system, system.codec(folder))
    if isinstance(config, PolyphraseConfig):
        if config.lora is not None:
            model = LatentSeq2Seq.merged(folder, config)
        else:
            model = LatentSeq2Seq.from_pretrained(folder, config=config)
    else:
        model = LatentSeq2Seq.from_backbone(name)
    return Built(model, model.codec(name))


def _configured(
    kind: type[PretrainedConfig], name: str, sizes: Mapping[str, Any], words: int
) -> PretrainedConfig:
    config = kind(vocab_size=words)
    for key, value in sizes.items():
        known = getattr(config, key, None)
        if key not in vars(config) or key.startswith("_"):
            raise BadInput(f"network: {name} has no setting {key!r}")
        if known is not None and not isinstance(value, int if isinstance(known, int) else object):
            raise BadInput(f"network.{key} is {value!r}: give a whole number")
    return kind(**{**dict(sizes), "vocab_size": words})
