"""What the systems over a word vocabulary, trained from scratch, have in common."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor
from transformers import GenerationConfig, PretrainedConfig

from .. import __version__
from ..backbones.executor import Rules
from ..data import vocabulary
from ..data.codec import Codec
from ..data.vocabulary import Vocabulary, VocabularyCodec
from .saving import SavedModel
from .system import ElboOutput


class WordSystemConfig(PretrainedConfig):
    """The special words of a `Vocabulary`, and its size.

    Attributes:
        vocab_size: V, the special words included.
        polyphrase_version: the version that wrote the folder.
    """

    def __init__(
        self,
        vocab_size: int = 20_000,
        polyphrase_version: str = __version__,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.polyphrase_version = polyphrase_version
        kwargs.setdefault("is_encoder_decoder", True)
        kwargs.setdefault("pad_token_id", vocabulary.PAD)
        kwargs.setdefault("eos_token_id", vocabulary.END)
        kwargs.setdefault("decoder_start_token_id", vocabulary.START)
        super().__init__(**kwargs)


class WordSystem(SavedModel):
    """A system whose words are numbered by a `Vocabulary`: see `System`.

    A subclass adds the stages of `System` and `elbo`.
    """

    base_model_prefix = "model"
    main_input_name = "input_ids"
    copying: ClassVar[bool] = False
    """Whether words that only a source knows have numbers of their own."""
    start_token = vocabulary.START
    pad_token = vocabulary.PAD
    rules = Rules(
        end=vocabulary.END,
        forbidden=(vocabulary.PAD, vocabulary.UNKNOWN, vocabulary.START),
    )
    has_latent = True

    def __init__(self, config: WordSystemConfig) -> None:
        super().__init__(config)
        self.generation_config = GenerationConfig(
            pad_token_id=self.pad_token,
            eos_token_id=self.rules.end,
            decoder_start_token_id=self.start_token,
        )

    def init_weights(self) -> None:
        """Leave the weights alone: each part starts itself."""

    def codec(self, name: str, max_length: int | None = None) -> Codec:
        """The vocabulary of a saved folder."""
        return self.codec_for(Vocabulary.load(name), max_length)

    @classmethod
    def codec_for(cls, words: Vocabulary, max_length: int | None = None) -> Codec:
        """Texts as tensors for this system."""
        return VocabularyCodec(words, max_length, copying=cls.copying)

    def elbo(
        self, sources: Mapping[str, Tensor], labels: Tensor, sample: bool | None = None
    ) -> ElboOutput:
        """The bound, as this system is trained: by its own estimator, or without chance."""
        raise TypeError(f"{type(self).__name__} does not say how it is trained")

    def forward(self, labels: Tensor, **sources: Tensor) -> ElboOutput:
        """The bound, as transformers' trainer asks for it."""
        return self.elbo(sources, labels)
