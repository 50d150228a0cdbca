"""Backbones: any Hugging Face sequence-to-sequence model by name, `starter` among them."""

import contextlib
import errno
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import BadInput
from .starter import starter_folder

STARTER = "starter"

_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_TOKENIZER_FILES = ("tokenizer.json", "*.model", "*.spm", "vocab*")


def resolve(name: str) -> str:
    """What `from_pretrained` reads for a backbone's name.

    Args:
        name: `starter`, a local folder, or a hub id such as `google-t5/t5-base`.

    Returns:
        The folder, absolute; or the hub id as it is.

    Raises:
        BadInput: for a path at which no model lies.
    """
    if name == STARTER:
        return str(starter_folder())
    if not name.strip():  # as a path it would be the current folder
        raise BadInput(f"the name of a model is empty; give a folder, a hub id or {STARTER!r}")
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BadInput(f"{name} is not a model folder: it has no config.json")
        return str(path.resolve())
    if path.exists():
        raise BadInput(f"{name} is a file: give the folder that the model was saved to")
    if not _HUB_ID.fullmatch(name):
        raise BadInput(f"{name!r}: no such folder; give a model folder, a hub id or {STARTER!r}")
    return name


def load_config(name: str, **options: Any) -> Any:
    """The configuration of a backbone; `options` go to `from_pretrained`."""
    from transformers import AutoConfig

    with loading(name):
        return AutoConfig.from_pretrained(resolve(name), trust_remote_code=False, **options)


def load_tokenizer(name: str, **options: Any) -> Any:
    """The tokenizer of a backbone; `options` go to `from_pretrained`."""
    from transformers import AutoTokenizer

    with loading(name):
        source = resolve(name)
        folder = Path(source)
        if folder.is_dir() and not any(
            file for pattern in _TOKENIZER_FILES for file in folder.glob(pattern)
        ):  # transformers would make up one that knows no word
            raise BadInput(f"{name} has no tokenizer: save the model's tokenizer into the folder")
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options)


def load_seq2seq(name: str, **options: Any) -> Any:
    """The pretrained encoder–decoder; `options` go to `from_pretrained`.

    Weights are read from safetensors only: nothing is ever unpickled.
    """
    from transformers import AutoModelForSeq2SeqLM

    with loading(name):
        return AutoModelForSeq2SeqLM.from_pretrained(
            resolve(name), use_safetensors=True, trust_remote_code=False, **options
        )


@contextlib.contextmanager
def loading(name: str) -> Iterator[None]:
    """Around any `from_pretrained`: what goes wrong becomes one sentence, and noise is kept away.

    Kept away is the progress bar of a model on this disk, and the warning that transformers 5 gives
    for every T5 whose output layer is its own, as that of T5 1.1, flan-T5 and the starter.

    Raises:
        BadInput: for a model that cannot be had or cannot be read.
    """
    from safetensors import SafetensorError

    try:
        with _quiet(bar=is_local(name)):
            yield
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise BadInput(_sentence(name, error)) from error


def _sentence(name: str, error: Exception) -> str:
    reason = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"{name}: no space left on the disk: free some and run again"
    if "this kind of AutoModel" in reason:
        return f"{name} is not a sequence-to-sequence model: give an encoder-decoder such as T5"
    if "ignore_mismatched_sizes" in reason:
        return f"{name}: the weights do not fit its config.json; save the model again"
    if "named model.safetensors" in reason:
        return f"{name} has no model.safetensors, and other formats of weights are not read"
    if isinstance(error, OSError) and not is_local(name):
        return (
            f"{name}: neither a folder here nor to be had from the hub; "
            f"check the name and the network, or use {STARTER!r}"
        )
    return f"{name} cannot be read as a model: {reason.partition('. ')[0]}"


def is_local(name: str) -> bool:
    """Whether a backbone's name is `starter` or a folder, and not the hub's."""
    return name == STARTER or Path(name).expanduser().is_dir()


@contextlib.contextmanager
def _quiet(bar: bool) -> Iterator[None]:
    from transformers.utils import logging as transformers_logging

    log = logging.getLogger("transformers.modeling_utils")
    bar = bar and transformers_logging.is_progress_bar_enabled()
    if bar:
        transformers_logging.disable_progress_bar()
    log.addFilter(_is_not_about_untied_t5)
    try:
        yield
    finally:
        log.removeFilter(_is_not_about_untied_t5)
        if bar:
            transformers_logging.enable_progress_bar()


def _is_not_about_untied_t5(record: logging.LogRecord) -> bool:
    # T5Config says "tied" of every T5; the weights, both present and different, know better.
    return "specifies to tie" not in record.getMessage()
