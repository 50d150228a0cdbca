"""Many different and good versions of a sentence.

>>> import polyphrase
>>> rewriter = polyphrase.load()
>>> rewriter.generate(["How do I learn to cook well?"], n=3, seed=0)  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

import wrapt

__version__ = "0.1.0"
__all__ = ["LatentConfig", "LatentSeq2Seq", "Rewriter", "Search", "load"]

if TYPE_CHECKING:
    from .api import Rewriter, load
    from .decoding.settings import Search
    from .latent.config import LatentConfig
    from .models.latent_seq2seq import LatentSeq2Seq

_HOMES = {
    "LatentConfig": "latent.config",
    "LatentSeq2Seq": "models.latent_seq2seq",
    "Rewriter": "api",
    "Search": "decoding.settings",
    "load": "api",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: `polyphrase --help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


@wrapt.when_imported("transformers.models.auto.configuration_auto")
def _announce(module: Any) -> None:
    # `AutoModelForSeq2SeqLM.from_pretrained` finds our models, and yet importing this package
    # imports neither torch nor transformers.
    from .models.auto import announce

    announce(module.CONFIG_MAPPING)
