"""What a saved system says of itself."""

from typing import Any

from transformers import AutoConfig, PretrainedConfig

from .. import __version__
from ..latent.config import LatentConfig
from ..settings import from_mapping


class PolyphraseConfig(PretrainedConfig):
    """The `config.json` of a `LatentSeq2Seq`.

    Attributes:
        backbone: the configuration of the Hugging Face network, `model_type` included.
        latent: the settings of prior, posterior, kernel and injection; `None` for the
            deterministic model.
        base: the name of the backbone whose weights this folder does not repeat, because only
            the latent and low-rank adapters were trained; `None` when the weights are whole.
        lora: rank and scale of the adapters, `None` without them.
        polyphrase_version: the version that wrote the folder.
    """

    model_type = "polyphrase"

    def __init__(
        self,
        backbone: dict[str, Any] | None = None,
        latent: dict[str, Any] | None = None,
        base: str | None = None,
        lora: dict[str, Any] | None = None,
        polyphrase_version: str = __version__,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("is_encoder_decoder", True)
        self.backbone = backbone or {"model_type": "t5"}
        self.latent = latent
        self.base = base
        self.lora = lora
        self.polyphrase_version = polyphrase_version
        super().__init__(**kwargs)

    @property
    def latent_config(self) -> LatentConfig | None:
        """The latent's settings, checked."""
        if self.latent is None:
            return None
        return from_mapping(LatentConfig, self.latent, "config.json: latent")

    @property
    def network_config(self) -> PretrainedConfig:
        """The configuration of the network inside, as its own class."""
        values = dict(self.backbone)
        return AutoConfig.for_model(values.pop("model_type"), **values)

    def get_text_config(
        self, decoder: bool | None = None, encoder: bool | None = None
    ) -> PretrainedConfig:
        """The configuration that sizes caches in `generate`: the network's."""
        return self.network_config.get_text_config(decoder=decoder, encoder=encoder)
