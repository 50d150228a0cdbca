"""What the latent costs: a training step with it over the step without, and its KL by itself.

The step: a backbone of the sizes of T5-base with random weights; 16 sources and targets of 50
tokens; Adam; float32. Steps with and without the latent alternate, and the ratio of each pair
counts, so that what else the machine does hits both alike. The KL: see `latent_kl`.
"""

import statistics
import time
from collections.abc import Callable

import torch
from transformers import T5Config, T5ForConditionalGeneration

from polyphrase.latent.config import LatentConfig
from polyphrase.models.config import PolyphraseConfig
from polyphrase.models.latent_seq2seq import LatentSeq2Seq
from polyphrase.settings import to_mapping

from . import latent_kl
from .table import Line

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


def overhead(pairs: int) -> Line:
    """The ratio of GP to deterministic steps."""
    steps = {"without": stepper(None), "with": stepper(LatentConfig())}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for pair in range(pairs + 1):  # the first warms up
        for name in list(steps) if pair % 2 else list(reversed(steps)):
            start = time.perf_counter()
            steps[name]()
            if pair:
                seconds[name].append(time.perf_counter() - start)
    ratios = [a / b for a, b in zip(seconds["with"], seconds["without"], strict=True)]
    return Line(
        "training step with the GP latent / without, T5-base size",
        statistics.median(ratios),
        1.03,
        False,
        f"{pairs} alternating pairs, {min(ratios):.3f} to {max(ratios):.3f}; "
        f"{statistics.median(seconds['without']):.1f} s without",
    )


def divergence(rounds: int) -> list[Line]:
    """The KL's speed, value, numerical range and memory, the worse of both posteriors each."""
    lines = []
    speed = latent_kl.speed(rounds)
    for peer, goal, name in (
        ("normals", 150, "KL faster than `MultivariateNormal` per dimension"),
        ("loop", 60, "KL faster than the double loop on positions"),
    ):
        by_form = {form: result["times_faster_than"][peer] for form, result in speed.items()}
        detail = ", ".join(
            f"{form} {ratio:.0f}x ({speed[form]['milliseconds']['ours']:.1f} ms against "
            f"{speed[form]['milliseconds'][peer]:.0f} ms)"
            for form, ratio in by_form.items()
        )
        lines.append(Line(name, min(by_form.values()), goal, True, detail))
    errors = [
        error
        for result in speed.values()
        for error in result["relative_difference_in_float64"].values()
    ]
    lines.append(Line("KL, relative difference to both, float64", max(errors), 1e-6, False, ""))
    grid = latent_kl.grid()
    lines.append(
        Line(
            "KL over the grid of v, r, N: worst relative error to float64",
            grid["worst_relative_error"] if grid["all_finite"] else float("inf"),
            1e-3,
            False,
            f"{grid['points']} points, all finite: {grid['all_finite']}",
        )
    )
    memory = latent_kl.memory()
    worst = max(memory, key=lambda form: memory[form]["tensors"])
    lines.append(
        Line(
            "KL at N = 512, D = 768, B = 16: memory, MB",
            memory[worst]["tensors"],
            200,
            False,
            f"{worst} posterior; gradients of the inputs take "
            f"{memory[worst]['of_these_gradients']:.0f} MB of it",
        )
    )
    return lines


def measure(quick: bool) -> list[Line]:
    """All of it."""
    return [overhead(2 if quick else 5), *divergence(2 if quick else 5)]
