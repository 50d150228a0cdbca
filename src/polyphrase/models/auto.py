"""Makes the `Auto` classes of transformers know the systems of this library."""

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from .config import PolyphraseConfig
from .latent_seq2seq import LatentSeq2Seq


def register() -> None:
    """Register every saved system by the `model_type` of its `config.json`."""
    AutoConfig.register(PolyphraseConfig.model_type, PolyphraseConfig, exist_ok=True)
    AutoModelForSeq2SeqLM.register(PolyphraseConfig, LatentSeq2Seq, exist_ok=True)
