"""`polyphrase train`: pairs in, a model folder out."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import BadInput

Flag = Annotated[str | None, typer.Option()]


def train(
    train: Annotated[str | None, typer.Option(help="Training pairs: source, tab, target.")] = None,
    val: Annotated[str | None, typer.Option(help="Validation pairs.")] = None,
    out: Annotated[str | None, typer.Option(help="The folder of the trained model.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings in YAML; flags go before.")] = None,
    system: Annotated[
        str | None,
        typer.Option(help="A row of the paper's tables: pg, pg-gp, t5, t-cvae, copy ..."),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="'paper' is the paper to the letter.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="'starter', a hub id, a folder, or 'pointer-generator' and the like from scratch.",
            show_default="starter",
        ),
    ] = None,
    prior: Annotated[
        str | None, typer.Option(help="gp, normal, mixture, vamp; 'none' is no latent.")
    ] = None,
    posterior: Annotated[str | None, typer.Option(help="correlated or diagonal.")] = None,
    injection: Annotated[str | None, typer.Option(help="concat, add or replace.")] = None,
    kernel: Annotated[
        str | None,
        typer.Option(help="rbf, matern12, matern32, matern52, rational_quadratic, linear, cosine."),
    ] = None,
    v: Annotated[float | None, typer.Option(help="The prior's standard deviation.")] = None,
    r: Annotated[float | None, typer.Option(help="The kernel's length scale.")] = None,
    noise: Annotated[float | None, typer.Option(help="sigma^2 / v^2.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="relative (v in RMS of h, r in median distances), absolute.")
    ] = None,
    learnable: Annotated[bool | None, typer.Option(help="Train v and r as well.")] = None,
    latent_size: Annotated[int | None, typer.Option(help="D. Default: the encoder's.")] = None,
    components: Annotated[int | None, typer.Option(help="Of mixture and vamp.")] = None,
    kl: Annotated[str | None, typer.Option(help="full, sum (as released) or none.")] = None,
    kernel_gradient: Annotated[
        bool | None, typer.Option(help="Gradients through the covariance.")
    ] = None,
    kl_weight: Annotated[float | None, typer.Option(help="w; 1 is the bound.")] = None,
    annealing_steps: Annotated[int | None, typer.Option(help="Steps from w = 0 to w.")] = None,
    free_bits: Annotated[float | None, typer.Option(help="Nats of KL that cost nothing.")] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Words of a network from scratch.", show_default="20000")
    ] = None,
    lowercase: Annotated[
        bool | None, typer.Option(help="Lower-case texts (networks from scratch).")
    ] = None,
    lora: Annotated[
        int | None, typer.Option(help="Rank of low-rank adapters; 0 trains the whole backbone.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of Adam.", show_default="1e-4")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Pairs per step.")] = None,
    epochs: Annotated[float | None, typer.Option(help="The most passes over the pairs.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="The most steps.")] = None,
    eval_every: Annotated[
        int | None, typer.Option(help="Steps between evaluations. Default: an epoch.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="Evaluations without improvement before it stops.")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens read of a text.")] = None,
    strict: Annotated[
        bool | None, typer.Option(help="Refuse training texts that would be cut.")
    ] = None,
    bf16: Annotated[
        bool | None, typer.Option(help="bfloat16 autocast. Default: if the processor has it.")
    ] = None,
    spread: Annotated[float | None, typer.Option(help="Saved as the model's spread.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    tensorboard: Annotated[bool | None, typer.Option(help="Write TensorBoard files.")] = None,
) -> None:
    """Train a paraphraser on pairs of texts."""
    flags: dict[str, Any] = {
        **{"train": train, "val": val, "out": out, "backbone": backbone},
        **{"latent.prior": prior, "latent.posterior": posterior, "latent.injection": injection},
        **{"latent.size": latent_size, "latent.components": components, "latent.kl": kl},
        **{"latent.kernel_gradient": kernel_gradient, "latent.kernel.name": kernel},
        **{"latent.kernel.v": v, "latent.kernel.r": r, "latent.kernel.noise": noise},
        **{"latent.kernel.scale": scale, "latent.kernel.learnable": learnable},
        **{"objective.kl_weight": kl_weight, "objective.annealing_steps": annealing_steps},
        **{"objective.free_bits": free_bits, "lora.rank": lora, "learning_rate": learning_rate},
        **{"vocabulary.size": vocabulary, "vocabulary.lowercase": lowercase},
        **{"batch_size": batch_size, "epochs": epochs, "max_steps": max_steps},
        **{"eval_every": eval_every, "patience": patience, "max_length": max_length},
        **{"strict": strict, "bf16": bf16, "spread": spread, "seed": seed},
        **{"tensorboard": tensorboard},
    }
    given = {name: value for name, value in flags.items() if value is not None}
    settings = _settings(system, config, preset, given, resume)
    if _is_one_file(settings.train, settings.val):
        raise BadInput(
            f"{settings.val} is both --train and --val: give validation pairs that are not trained "
            "on, such as polyphrase data split makes"
        )

    from ..training import run

    run.train(settings, resume)
    print(
        f"{settings.out}: trained; try polyphrase paraphrase --model {settings.out}",
        file=sys.stderr,
    )


def _settings(
    system: str | None,
    config: Path | None,
    preset: str | None,
    flags: dict[str, Any],
    resume: bool,
) -> Any:
    from ..settings import from_mapping, merge, read_yaml, to_mapping
    from ..training import catalogue
    from ..training import settings as training

    values: dict[str, Any] = {} if config is None else read_yaml(config)
    if resume and "out" in flags and (system, config, preset) == (None,) * 3:
        values = to_mapping(training.resumed_settings(flags["out"]))
    system = system or values.get("system")
    row = catalogue.row(system) if isinstance(system, str) else {}
    if preset == "paper":
        row = _to_the_letter(row)
    elif preset is not None:
        raise BadInput(f"preset {preset!r} is unknown: 'paper' is the one there is")
    values = merge(row, values)
    _refuse_flags_of_no_latent(flags, values)
    if flags.get("latent.prior") == "none":
        flags = {name: value for name, value in flags.items() if not name.startswith("latent.")}
        values["latent"] = None
    if flags.get("lora.rank") == 0:
        del flags["lora.rank"]
        values["lora"] = None
    for name, value in flags.items():
        *path, leaf = name.split(".")
        nested: dict[str, Any] = {leaf: value}
        for part in reversed(path):
            nested = {part: nested}
        values = merge(values, nested)
    missing = [name for name in ("train", "val", "out") if not values.get(name)]
    if missing:
        raise BadInput(
            "train needs "
            + " and ".join(f"--{name}" for name in missing)
            + ": give files of 'source<TAB>target' lines and a folder for the model"
        )
    return from_mapping(training.TrainSettings, values)


def _refuse_flags_of_no_latent(flags: dict[str, Any], values: dict[str, Any]) -> None:
    """Refuse to make a latent, or to say nothing, where flags speak of one that is not there."""
    prior = flags.get("latent.prior")
    if prior != "none" and (prior is not None or values.get("latent", {}) is not None):
        return
    idle = [_flag(name) for name in flags if name.startswith("latent.") and name != "latent.prior"]
    if not idle:
        return
    leave = f"leave out {' and '.join(idle)}"
    if prior == "none":
        raise BadInput(f"--prior none has no latent: {leave}")
    who = values.get("system") or "this run"
    raise BadInput(f"{who} has no latent: {leave}, or add --prior for a latent")


def _flag(name: str) -> str:
    """The flag that sets a value of the latent."""
    of_others = {"latent.size": "--latent-size", "latent.kernel.name": "--kernel"}
    return of_others.get(name) or "--" + name.rpartition(".")[2].replace("_", "-")


def _to_the_letter(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the paper's latent: of the row's prior, where and as wide as the row has it."""
    from ..settings import to_mapping
    from ..training import settings as training

    row = {"spread": 7.0, **row}
    own = row.get("latent", {})
    if own is None:
        return row
    latent = to_mapping(training.paper_latent(own.get("prior", "gp")))
    kept = {name: own[name] for name in ("injection", "size") if name in own}
    return {**row, "latent": {**latent, **kept}}


def _is_one_file(one: str, other: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(one).samefile(other)
    return one == other
