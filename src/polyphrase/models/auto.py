"""Makes the `Auto` classes of transformers know the systems of this library."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

SYSTEMS = {
    "polyphrase": "latent_seq2seq",
    "variation-attention": "variation_attention",
    "multi-selectors": "multi_selectors",
    "t-cvae": "t_cvae",
    "copy-source": "copy_source",
}
"""Which module of this package holds the system of a `model_type`; each registers at its end."""


def register(config: type[PretrainedConfig], model: type[PreTrainedModel]) -> None:
    """Let `AutoConfig` and `AutoModelForSeq2SeqLM` find a system by its `model_type`."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    AutoConfig.register(config.model_type, config, exist_ok=True)
    AutoModelForSeq2SeqLM.register(config, model, exist_ok=True)


def announce(mapping: Any) -> None:
    """Put a stand-in for each system's configuration into `CONFIG_MAPPING`.

    The stand-in imports the system when a folder of its type is first read. So the systems need not
    be imported when transformers is, which may be in the middle of importing one of them.
    """
    for model_type, module in SYSTEMS.items():
        if model_type not in mapping:
            mapping.register(model_type, _stand_in(mapping, model_type, module), exist_ok=True)


def _stand_in(mapping: Any, model_type: str, module: str) -> type:
    def from_dict(values: dict[str, Any], **options: Any) -> PretrainedConfig:
        import_module(f"{__package__}.{module}")
        config: PretrainedConfig = mapping[model_type].from_dict(values, **options)
        return config

    return type("StandIn", (), {"model_type": model_type, "from_dict": staticmethod(from_dict)})
