"""Generation: 64 sentences × 10 samples × 10 beams on the trained starter, beside its peers."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from polyphrase import load
from polyphrase.allocator import keep_big_buffers
from polyphrase.api import Rewriter
from polyphrase.backbones.executor import Executor
from polyphrase.backbones.memory import Memory
from polyphrase.backbones.packed import Product
from polyphrase.decoding.hypotheses import Hypotheses
from polyphrase.decoding.randomness import latent_noise
from polyphrase.decoding.search import run_search
from polyphrase.decoding.settings import Search

from .machine import product_rate, seconds
from .peers import CTranslate2, transformers_generate
from .sentences import SENTENCES
from .table import Line

SAMPLES = 10
GROUP = 4  # sentences that run together
SEARCH = Search(beams=10, min_length=24, max_length=32)


def fused(rewriter: Rewriter, texts: list[str], samples: int = SAMPLES) -> Memory:
    """The memories of all samples of some texts."""
    model: Any = rewriter.model
    sources = rewriter.codec.encode(texts).tensors
    memory = model.encode(sources)
    beliefs = model.beliefs(memory)
    noise = latent_noise(0, texts, range(samples), memory.mask, beliefs.mean.shape[-1])
    z = beliefs.sample(noise, rewriter.spread)
    fused: Memory = model.fuse(memory.repeat(samples), z.transpose(0, 1).flatten(0, 1))
    return fused


def groups(rewriter: Rewriter, sentences: int) -> list[Memory]:
    """The memories of some of the sentences, a few at a time."""
    chosen = SENTENCES[:sentences]
    return [
        fused(rewriter, list(chosen[start : start + GROUP])) for start in range(0, sentences, GROUP)
    ]


class Counted:
    """An executor that counts the rows it is asked for."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.logits = executor.logits
        self.rows: list[int] = []

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """One step of so many rows."""
        self.rows.append(len(tokens))
        return self._executor.step(tokens, parents)


def ours(rewriter: Rewriter, memory: Memory, executor: Executor | None = None) -> Hypotheses:
    """The library's search, with the model's own executor unless another is given."""
    model: Any = rewriter.model
    return run_search(
        executor or model.executor(memory),
        len(memory),
        SEARCH,
        model.rules,
        model.start_token,
        model.pad_token,
        memory.states.device,
    )


def necessary(network: PreTrainedModel, memory: Memory, rows: list[int]) -> float:
    """Multiply-adds, times two, that nobody can leave out: live rows, real positions."""
    c = network.config
    inner = c.num_heads * c.d_kv
    weights = c.num_decoder_layers * (6 * c.d_model * inner + 3 * c.d_model * c.d_ff)
    weights += c.d_model * c.vocab_size
    source = float(memory.mask.sum(1).float().mean())
    attention = 2 * inner * c.num_decoder_layers
    per_word = sum(count * (weights + attention * (t + 1 + source)) for t, count in enumerate(rows))
    keys = 2 * c.num_decoder_layers * c.d_model * inner * float(memory.mask.sum())
    return 2 * (per_word + keys)


@contextmanager
def packed_linears(network: nn.Module) -> Iterator[None]:
    """All linear layers of a network through oneDNN with packed weights."""
    linears = [module for module in network.modules() if type(module) is nn.Linear]
    for module in linears:
        object.__setattr__(module, "forward", _packed(Product(module.weight, torch.float32)))
    try:
        yield
    finally:
        for module in linears:
            object.__delattr__(module, "forward")


def _packed(product: Product) -> Callable[[Tensor], Tensor]:
    return lambda x: product(x.flatten(0, -2)).unflatten(0, x.shape[:-1])


def after_end(tokens: Tensor, end: int, pad: int) -> Tensor:
    """Everything after the first end token as padding: peers fill it with different tokens."""
    ended = (tokens == end).int().cumsum(-1)
    return tokens.masked_fill((ended - (tokens == end).int()) > 0, pad)


@torch.inference_mode()
def measure(quick: bool, profile: bool) -> list[Line]:
    """The lines of the table about generation."""
    exact = load(precision="float32")
    model: Any = exact.model
    network = model.backbone.network
    some = groups(exact, GROUP)
    memory, *_ = some

    def one_by_one(sentences: int, samples: int) -> None:
        for text in SENTENCES[:sentences]:
            for _ in range(samples):
                transformers_generate(network, fused(exact, [text], 1), SEARCH)

    # As it ships: the C library still returns every buffer.
    sentences, samples = (1, 2) if quick else (2, 5)
    paper = seconds(lambda: one_by_one(sentences, samples)) / sentences / samples * SAMPLES
    shipped = seconds(lambda: transformers_generate(network, memory, SEARCH)) / GROUP
    keep_big_buffers()
    with packed_linears(network):
        expected = transformers_generate(network, memory, SEARCH)
        tuned = seconds(lambda: transformers_generate(network, memory, SEARCH)) / GROUP
    found = ours(exact, memory)
    if not torch.equal(
        after_end(found.tokens, model.rules.end, 0), after_end(expected, model.rules.end, 0)
    ):
        raise AssertionError("our hypotheses are not those of generate")
    float32 = seconds(lambda: ours(exact, memory), 2) / GROUP
    lines = [
        Line(
            "generation float32 / batched `generate` as it ships",
            shipped / float32,
            3.5,
            True,
            f"{float32:.2f} against {shipped:.2f} s a sentence, all hypotheses equal",
        ),
        Line(
            "generation float32 / batched `generate`, same allocator and oneDNN",
            tuned / float32,
            1.7,
            True,
            f"{float32:.2f} against {tuned:.2f} s a sentence, all hypotheses equal",
        ),
    ]
    # The default precision, beside int8 and the processor's own rate, in turns.
    rewriter = load()
    default: Any = rewriter.model
    reference = CTranslate2(network, memory, "int8")
    reference.search(SEARCH, GROUP * SAMPLES)
    mine: list[float] = []
    theirs: list[float] = []
    rates: list[float] = []
    flops = 0.0
    words = 0.0
    for part in groups(rewriter, 16 if quick else 64):
        counted = Counted(default.executor(part))
        start = time.perf_counter()
        result = ours(rewriter, part, counted)
        mine.append(time.perf_counter() - start)
        flops += necessary(network, part, counted.rows)
        words += float((result.tokens[:, 0] != model.pad_token).sum(1).float().mean())
        if len(mine) <= 4:
            theirs.append(seconds(lambda: reference.search(SEARCH, GROUP * SAMPLES)))
            rates.append(product_rate(default.backbone.precision or torch.float32))
    each = sum(mine) / len(mine) / GROUP
    int8 = sum(theirs) / len(theirs) / GROUP
    rate = flops / sum(mine)
    peak = sum(rates) / len(rates)
    detail = f"{words / len(mine):.0f} words, {len(mine) * GROUP} sentences"
    lines[:0] = [
        Line(
            "generation / the paper's way, one sentence and sample at a time",
            paper / each,
            12,
            True,
            f"{each:.2f} against {paper:.2f} s a sentence ({detail})",
        )
    ]
    lines += [
        Line(
            "generation / CTranslate2 int8 on the same memory",
            int8 / each,
            1,
            True,
            f"{each:.2f} against {int8:.2f} s a sentence",
        ),
        Line(
            "share of the measured matrix-product rate",
            rate / peak,
            0.55,
            True,
            f"{rate / 1e9:.0f} of {peak / 1e9:.0f} GFLOP/s, necessary multiply-adds only",
        ),
    ]
    if profile:
        stages(rewriter)
    return lines


@dataclass
class Watch:
    """An executor whose two parts are timed."""

    executor: Executor
    decoder: float = 0.0
    vocabulary: float = 0.0

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """The decoder."""
        start = time.perf_counter()
        features = self.executor.step(tokens, parents)
        self.decoder += time.perf_counter() - start
        return features

    def logits(self, features: Tensor) -> Tensor:
        """The output layer."""
        start = time.perf_counter()
        logits = self.executor.logits(features)
        self.vocabulary += time.perf_counter() - start
        return logits


@torch.inference_mode()
def stages(rewriter: Rewriter) -> None:
    """Print where the time of one group goes, by stage and by operation."""
    model: Any = rewriter.model
    texts = list(SENTENCES[:GROUP])
    fused(rewriter, texts)
    start = time.perf_counter()
    memory = fused(rewriter, texts)
    latent = time.perf_counter() - start
    ours(rewriter, memory)
    start = time.perf_counter()
    watch = Watch(model.executor(memory))
    keys = time.perf_counter() - start
    start = time.perf_counter()
    ours(rewriter, memory, watch)
    rest = time.perf_counter() - start - watch.decoder - watch.vocabulary
    parts = {
        "encoder, latent and fusion": latent,
        "keys and values of the memory": keys,
        "decoder layers": watch.decoder,
        "output layer": watch.vocabulary,
        "normalisation, best words and beams": rest,
    }
    total = sum(parts.values())
    for name, value in parts.items():
        print(f"  {name:<40} {value / GROUP:7.3f} s a sentence {value / total:6.1%}")
    with torch.profiler.profile() as profile:
        ours(rewriter, memory)
    print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=20))
