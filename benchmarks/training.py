"""Training: pairs per second of the starter at 32 pairs a step, beside a plain `Trainer` loop.

Each way runs in a process of its own, in turns, because the allocator is set for a whole process.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import (
    DataCollatorForSeq2Seq,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from polyphrase.allocator import keep_big_buffers
from polyphrase.backbones.backbone import load_seq2seq
from polyphrase.backbones.lean import make_lean
from polyphrase.data.codec import TokenizerCodec
from polyphrase.latent.config import LatentConfig
from polyphrase.models.latent_seq2seq import LatentSeq2Seq
from polyphrase.training.run import _arguments
from polyphrase.training.settings import TrainSettings
from polyphrase.training.trainer import Collator, ElboTrainer, Pairs

from .sentences import of_length
from .table import Line

BATCH = 32
WARM_UP = 3  # steps that are not counted


def pairs(count: int) -> list[tuple[str, str]]:
    """Sources and targets of 5 to 40 words, each length apart from the other's, about 16."""
    chance = random.Random(0)

    def text() -> str:
        return of_length(round(min(40, 5 + chance.expovariate(1 / 11))), chance.randrange(64))

    return [(text(), text()) for _ in range(count)]


class Clock(TrainerCallback):
    """When each step ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note the time."""
        self.times.append(time.perf_counter())

    def rate(self) -> float:
        """Pairs per second after the warm-up."""
        times = self.times[WARM_UP - 1 :]
        return BATCH * (len(times) - 1) / (times[-1] - times[0])


def plain(codec: TokenizerCodec, data: list[tuple[str, str]], steps: int) -> tuple[Any, Trainer]:
    """What a user of transformers writes."""
    network = load_seq2seq("starter")
    rows = [
        codec.tokenizer(source, text_target=target, truncation=True, max_length=128)
        for source, target in data
    ]
    trainer = Trainer(
        network,
        TrainingArguments(
            tempfile.mkdtemp(),
            learning_rate=1e-4,
            lr_scheduler_type="constant",
            per_device_train_batch_size=BATCH,
            max_steps=steps,
            bf16=True,
            use_cpu=not torch.cuda.is_available(),
            report_to=[],
            save_strategy="no",
            logging_steps=steps,
        ),
        data_collator=DataCollatorForSeq2Seq(codec.tokenizer, network),
        train_dataset=rows,
    )
    return network, trainer


def ours(
    codec: TokenizerCodec, data: list[tuple[str, str]], steps: int, latent: LatentConfig | None
) -> tuple[Any, Trainer]:
    """What `polyphrase train` runs, without evaluation."""
    keep_big_buffers()
    settings = TrainSettings(
        train="", val="", out="", latent=latent, batch_size=BATCH, max_steps=steps, bf16=True
    )
    model = LatentSeq2Seq.from_backbone("starter", latent)
    make_lean(model)
    arguments = _arguments(settings, Path(tempfile.mkdtemp()), len(data))
    arguments.eval_strategy = arguments.save_strategy = "no"
    arguments.load_best_model_at_end = False
    trainer = ElboTrainer(
        objective=settings.objective,
        lengths=[(codec.length(source), codec.length(target)) for source, target in data],
        model=model,
        args=arguments,
        data_collator=Collator(codec),
        train_dataset=Pairs(data),
    )
    return model, trainer


def child(way: str, steps: int) -> dict[str, float]:
    """Train one way; pairs per second, and the loss on pairs that were not seen."""
    set_seed(0)
    data = pairs(BATCH * steps + 64)
    codec = LatentSeq2Seq.from_backbone("starter").codec("starter", 128)
    assert isinstance(codec, TokenizerCodec)
    train, held_out = data[:-64], data[-64:]
    if way == "plain":
        model, trainer = plain(codec, train, steps)
    else:
        model, trainer = ours(codec, train, steps, LatentConfig() if way == "gp" else None)
    clock = Clock()
    trainer.add_callback(clock)
    for default in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(default)
    trainer.train()
    network = model if way == "plain" else model.backbone.network
    inputs = Collator(codec)(held_out)
    with torch.no_grad():
        loss = network.eval()(**inputs).loss
    return {"rate": clock.rate(), "loss": float(loss)}


def measure(quick: bool) -> list[Line]:
    """The lines of the table about training."""
    steps, rounds = (8, 1) if quick else (16, 2)
    found: dict[str, list[dict[str, float]]] = {"plain": [], "deterministic": [], "gp": []}
    for _ in range(rounds):
        for way, results in found.items():
            run = [sys.executable, "-m", "benchmarks.training", way, str(steps)]
            output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
            results.append(json.loads(output.splitlines()[-1]))
    rate = {way: max(result["rate"] for result in results) for way, results in found.items()}
    loss = {way: results[0]["loss"] for way, results in found.items()}
    return [
        Line(
            "training / plain `Trainer`, bf16 autocast",
            rate["deterministic"] / rate["plain"],
            2,
            True,
            f"{rate['deterministic']:.1f} against {rate['plain']:.1f} pairs/s, {BATCH} a step",
        ),
        Line(
            f"held-out NLL per token after {steps} steps, less the plain loop's",
            loss["deterministic"] - loss["plain"],
            0.05,
            False,
            f"{loss['deterministic']:.3f} against {loss['plain']:.3f}",
        ),
        Line(
            "training with the GP latent / without",
            rate["deterministic"] / rate["gp"],
            1.03,
            False,
            f"{rate['gp']:.1f} against {rate['deterministic']:.1f} pairs/s",
        ),
    ]


if __name__ == "__main__":
    print(json.dumps(child(sys.argv[1], int(sys.argv[2]))))
