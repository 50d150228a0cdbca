"""Makes the `Auto` classes of transformers know the systems of this library."""

from importlib import import_module

from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

SYSTEMS = (
    "latent_seq2seq",
    "variation_attention",
    "multi_selectors",
    "t_cvae",
    "copy_source",
)
"""The modules of this package that hold a system; each calls `register` at its end."""


def register(config: type[PretrainedConfig], model: type[PreTrainedModel]) -> None:
    """Let `AutoModelForSeq2SeqLM.from_pretrained` find a system by its `model_type`."""
    # Not above: the first import of this module of transformers imports every system.
    from transformers.models.auto import modeling_auto

    AutoConfig.register(config.model_type, config, exist_ok=True)
    modeling_auto.AutoModelForSeq2SeqLM.register(config, model, exist_ok=True)


def register_all() -> None:
    """Import every system. One that is being imported now registers itself when it is done."""
    for system in SYSTEMS:
        import_module(f"{__package__}.{system}")
