"""Generation: 64 sentences × 10 samples × 10 beams on the trained starter, beside its peers."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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
from polyphrase.decoding.workers import Workers
from polyphrase.metrics.bleu import Bleu
from polyphrase.metrics.ngrams import Outputs

from .machine import product_rate, seconds
from .peers import CTranslate2, transformers_generate
from .sentences import REFERENCES, SENTENCES
from .table import Line

SAMPLES = 10
GROUP = 4  # sentences that run together
SEARCH = Search(beams=10, min_length=24, max_length=32)


def fused(rewriter: Rewriter, texts: list[str], samples: int = SAMPLES) -> Memory:
    """The memories of all samples of some texts."""
    model: Any = rewriter.model
    sources = rewriter.codec.encode(texts).tensors
    memory = model.encode({name: tensor.to(model.device) for name, tensor in sources.items()})
    beliefs = model.beliefs(memory)
    noise = latent_noise(0, texts, range(samples), memory.mask, beliefs.mean.shape[-1])
    noise = noise.to(model.device)
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


class Timed:
    """Our search over some memories, several at a time; what it took and what it needed."""

    def __init__(self, rewriter: Rewriter, workers: Workers) -> None:
        self._rewriter = rewriter
        self._workers = workers
        self._network = rewriter.model.backbone.network
        self.seconds = 0.0
        self.flops = 0.0

    def __call__(self, memories: list[Memory]) -> list[Hypotheses]:
        """Search all; the first call makes the decoder and is to be forgotten."""
        model: Any = self._rewriter.model
        begun = time.perf_counter()
        counted = [Counted(model.executor(memory)) for memory in memories]
        found = list(
            self._workers.map(
                partial(ours, self._rewriter, memory, executor)
                for memory, executor in zip(memories, counted, strict=True)
            )
        )
        self.seconds += time.perf_counter() - begun
        self.flops += sum(
            necessary(self._network, memory, executor.rows)
            for memory, executor in zip(memories, counted, strict=True)
        )
        return found


def at_float32(rewriter: Rewriter, workers: Workers, quick: bool) -> list[Line]:
    """Beside batched `generate`, equal hypothesis by hypothesis."""
    model: Any = rewriter.model
    network = model.backbone.network
    memories = groups(rewriter, GROUP * workers.count)
    sentences = GROUP * len(memories)
    shipped = child("batched", sentences)
    keep_big_buffers()
    with packed_linears(network):
        expected = [transformers_generate(network, memory, SEARCH) for memory in memories]
        tuned = seconds(
            lambda: [transformers_generate(network, memory, SEARCH) for memory in memories],
            1 if quick else 2,
        )
    timed = Timed(rewriter, workers)
    for found, theirs in zip(timed(memories), expected, strict=True):
        mine = after_end(found.tokens, model.rules.end, 0)
        if not torch.equal(mine, after_end(theirs, model.rules.end, 0)):
            raise AssertionError("our hypotheses are not those of generate")
    best = seconds(lambda: timed(memories), 1 if quick else 3) / sentences
    hypotheses = f"all {sentences * SAMPLES * SEARCH.beams} hypotheses equal"
    return [
        Line(
            "generation float32 / batched `generate` as it ships",
            shipped / best,
            3.5,
            True,
            f"{best:.2f} against {shipped:.2f} s a sentence, {hypotheses}",
        ),
        Line(
            "generation float32 / batched `generate`, same allocator and oneDNN",
            tuned / sentences / best,
            1.7,
            True,
            f"{best:.2f} against {tuned / sentences:.2f} s a sentence, {hypotheses}",
        ),
    ]


def at_default_precision(rewriter: Rewriter, workers: Workers, quick: bool) -> list[Line]:
    """Beside the paper's way, CTranslate2, and the processor's own rate, in turns."""
    model: Any = rewriter.model
    side_by_side = GROUP * workers.count
    memories = groups(rewriter, 2 * side_by_side if quick else len(SENTENCES))
    rounds = [
        memories[start : start + workers.count] for start in range(0, len(memories), workers.count)
    ]
    # CTranslate2 as it is fastest: one batch on all cores, or a batch on each.
    peers = [
        CTranslate2(model.backbone.network, rounds[0], "int8", batches)
        for batches in {1, workers.count}
    ]

    def search(peer: CTranslate2) -> float:
        return seconds(lambda: peer.search(SEARCH, GROUP * SAMPLES))

    for peer in peers:
        search(peer)
    Timed(rewriter, workers)(rounds[0])
    timed = Timed(rewriter, workers)
    theirs: list[float] = []
    rates: list[float] = []
    for number, part in enumerate(rounds):
        timed(part)
        if number < 4:
            theirs.append(min(search(peer) for peer in peers))
            rates.append(product_rate(model.backbone.precision or torch.float32))
    sentences = GROUP * len(memories)
    each = timed.seconds / sentences
    int8 = statistics.mean(theirs) / side_by_side
    rate, peak = timed.flops / timed.seconds, statistics.mean(rates)
    paper = child("paper", 1 if quick else 2)
    return [
        Line(
            "generation / the paper's way, one sentence and sample at a time",
            paper / each,
            12,
            True,
            f"{each:.2f} against {paper:.2f} s a sentence, {sentences} sentences",
        ),
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


def precision(exact: Rewriter, default: Rewriter, sentences: int) -> Line:
    """How far the default precision moves the average BLEU-2 of the samples."""
    texts, references = list(SENTENCES[:sentences]), list(REFERENCES[:sentences])
    bleu = Bleu("avg-bleu", order=2)
    scores = []
    for rewriter in (exact, default):
        outputs = Outputs(rewriter.generate(texts, n=SAMPLES), references, texts)
        scores.append(float(bleu.score(bleu.statistics(outputs).sum(axis=0))))
    return Line(
        "average BLEU-2 at the default precision, away from float32's",
        abs(scores[1] / scores[0] - 1),
        0.005,
        False,
        f"{scores[1]:.4f} against {scores[0]:.4f}, {sentences} sentences, three references each",
    )


def child(way: str, sentences: int) -> float:
    """Seconds a sentence of `generate` in a process whose allocator is as the C library has it."""
    run = [sys.executable, "-m", "benchmarks.generation", way, str(sentences)]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    return float(output.splitlines()[-1])


@torch.inference_mode()
def as_it_ships(way: str, sentences: int) -> float:
    """What `child` measures: batches of a few sentences, or one sample after the other."""
    rewriter = load(precision="float32")
    network = rewriter.model.backbone.network
    if way == "batched":
        memories = groups(rewriter, sentences)
        return (
            seconds(lambda: [transformers_generate(network, memory, SEARCH) for memory in memories])
            / sentences
        )
    samples = 5

    def one_by_one() -> None:
        for text in SENTENCES[:sentences]:
            for _ in range(samples):
                transformers_generate(network, fused(rewriter, [text], 1), SEARCH)

    return seconds(one_by_one) / sentences / samples * SAMPLES


def measure(quick: bool, profile: bool) -> list[Line]:
    """The lines of the table about generation."""
    with torch.inference_mode(), Workers(torch.get_num_threads()) as workers:
        exact, default = load(precision="float32"), load()
        lines = at_default_precision(default, workers, quick)
        lines[1:1] = at_float32(exact, workers, quick)
        lines.append(precision(exact, default, 16 if quick else len(SENTENCES)))
        if profile:
            stages(default)
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


if __name__ == "__main__":
    print(as_it_ships(sys.argv[1], int(sys.argv[2])))
