"""What the latent costs: a training step with it over the step without.

    python -m benchmarks.core [--pairs 5]

The backbone has the sizes of T5-base with random weights; 16 sources and targets of 50 tokens;
Adam; float32. Steps with and without the latent alternate, and the ratio of each pair counts, so
that what else the machine does hits both alike.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from transformers import T5Config, T5ForConditionalGeneration

from polyphrase.latent.config import LatentConfig
from polyphrase.models.config import PolyphraseConfig
from polyphrase.models.latent_seq2seq import LatentSeq2Seq
from polyphrase.settings import to_mapping

from .results import Row, record

T5_BASE = {
    **{"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    **{"vocab_size": 32128, "decoder_start_token_id": 0, "dropout_rate": 0.1},
}


def stepper(latent: LatentConfig | None) -> Callable[[], None]:
    """One training step of a model with or without the latent."""
    torch.manual_seed(0)
    network_config = T5Config(**T5_BASE)
    model = LatentSeq2Seq(
        PolyphraseConfig(
            backbone=network_config.to_dict(),
            latent=None if latent is None else to_mapping(latent),
        ),
        network=T5ForConditionalGeneration(network_config),
    ).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    ids = torch.randint(3, 32000, (16, 50))
    labels = torch.randint(3, 32000, (16, 50))
    sources = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def step() -> None:
        model.elbo(sources, labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(pairs: int) -> list[Row]:
    """The ratio of GP to deterministic steps."""
    steps = {"without": stepper(None), "with": stepper(LatentConfig())}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for round_ in range(pairs + 1):  # the first warms up
        order = list(steps) if round_ % 2 else list(reversed(steps))
        for name in order:
            start = time.perf_counter()
            steps[name]()
            if round_:
                seconds[name].append(time.perf_counter() - start)
    ratios = [a / b for a, b in zip(seconds["with"], seconds["without"], strict=True)]
    ratio = statistics.median(ratios)
    low, high = min(ratios), max(ratios)
    return [
        Row(
            what="training step, GP prior and correlated posterior / deterministic, T5-base size",
            measured=f"{ratio:.3f}",
            goal="at most 1.03",
            met=ratio <= 1.03,
            note=f"{pairs} alternating pairs, {low:.3f} to {high:.3f}; "
            f"{statistics.median(seconds['without']):.1f} s without",
        )
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    record("core", "The latent's cost in training", measure(parser.parse_args().pairs))
