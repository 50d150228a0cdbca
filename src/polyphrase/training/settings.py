"""Everything that decides a training run, in one YAML file beside the model."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..latent.config import KernelConfig, LatentConfig
from ..models.adapters import LoraSettings
from ..settings import from_mapping, read_yaml, to_mapping
from .objective import Objective

SETTINGS = "settings.yaml"
"""The file of a model folder that holds the run's settings."""


@dataclass(frozen=True, kw_only=True)
class VocabularySettings:
    """The words that a network from scratch has rows for.

    Attributes:
        size: how many, the special words included; the paper's.
        lowercase: whether texts lose their case, as T-CVAE was published.
    """

    size: int = 20_000
    lowercase: bool = False

    def __post_init__(self) -> None:
        if self.size < 5:
            raise BadInput(
                f"vocabulary.size is {self.size}: four words are special, give 5 or more"
            )


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """A training run; the optimisation defaults are the paper's (appendix C).

    Attributes:
        train: the training pairs, any format that `polyphrase data` reads.
        val: the validation pairs.
        out: the folder of the trained model.
        system: the row of the catalogue whose settings the run began with, if any.
        backbone: `starter`, a hub id or a folder; or a network that is trained from scratch,
            `pointer-generator`, `variation-attention`, `multi-selectors`, `t-cvae`, `copy-source`.
        network: sizes of a network from scratch, where they differ from the published ones.
        vocabulary: the words of a network from scratch.
        latent: prior, posterior, kernel and injection; null is the deterministic model.
        lora: train low-rank adapters instead of the whole backbone; null is the whole.
        objective: weight of the KL.
        learning_rate: of Adam, constant but for `decay`.
        betas: of Adam.
        decay: what the learning rate is multiplied by when the validation loss has not fallen;
            null for never.
        clip: the most that the gradient's norm may be.
        batch_size: pairs per step.
        epochs: the most passes over the training pairs.
        max_steps: the most steps; null is no limit but `epochs`.
        eval_every: steps between evaluations; null is once per epoch.
        patience: stop after this many evaluations without a lower validation loss.
        max_length: tokens of a source or target that are read, at most.
        strict: refuse training texts that are longer, rather than cut them and say so.
        bf16: compute in bfloat16 (autocast); null is where the processor has it.
        spread: the spread that the saved model samples with when none is asked for; 0 is the
            posterior mean everywhere.
        search: the search that it runs when none is asked for.
        seed: of data order, dropout, sampling and fresh weights.
        tensorboard: also write TensorBoard files.
    """

    train: str
    val: str
    out: str
    system: str | None = None
    backbone: str = "starter"
    network: dict[str, Any] = field(default_factory=dict)
    vocabulary: VocabularySettings = field(default_factory=VocabularySettings)
    latent: LatentConfig | None = field(default_factory=LatentConfig)
    lora: LoraSettings | None = None
    objective: Objective = field(default_factory=Objective)
    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    decay: float | None = None
    clip: float = 1.0
    batch_size: int = 32
    epochs: float = 30.0
    max_steps: int | None = None
    eval_every: int | None = None
    patience: int = 10
    max_length: int = 128
    strict: bool = False
    bf16: bool | None = None
    spread: float = 16.0
    search: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        positive = (
            *("learning_rate", "clip", "batch_size", "epochs"),
            *("patience", "max_length"),
        )
        for name in positive:
            if not getattr(self, name) > 0:
                raise BadInput(f"{name} is {getattr(self, name)}: give a positive number")
        for name in ("learning_rate", "epochs"):
            if not math.isfinite(getattr(self, name)):
                raise BadInput(f"{name} is {getattr(self, name)}: give a finite number above 0")
        if not (math.isfinite(self.spread) and self.spread >= 0):
            raise BadInput(f"spread is {self.spread}: give a finite number from 0 up")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise BadInput(
                f"betas are {self.betas[0]} and {self.betas[1]}: "
                "give two numbers from 0 up, below 1"
            )
        if not 0 <= self.seed < 2**32:
            raise BadInput(f"seed is {self.seed}: give a whole number from 0 up, below 2**32")
        if self.decay is not None and not 0 < self.decay < 1:
            raise BadInput(f"decay is {self.decay}: give a number between 0 and 1")
        for name in ("max_steps", "eval_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{name} is {value}: give 1 or more")


def paper_latent(prior: str = "gp") -> LatentConfig:
    """The latent to the paper's letter (sections 2 and 3, appendix C).

    A mean-field posterior of two linear layers, size 512, memory W_z [z ; h], an RBF kernel on the
    absolute scale. The paper chooses v and r by grid search and prints neither; these are the
    values published with its T5 code, turned into the paper's v (its code's amplitude is D v^2).
    At such an r the off-diagonal of K is zero: `Latent` warns of it.
    """
    return LatentConfig(
        prior=prior,  # type: ignore[arg-type] # checked by LatentConfig itself
        posterior="diagonal",
        injection="concat",
        size=512,
        kernel=KernelConfig(name="rbf", v=0.82, r=1e-3, noise=0.0, scale="absolute"),
        start_at_prior=False,
    )


def resumed_settings(folder: str | Path) -> TrainSettings:
    """The settings of the run in a folder."""
    path = Path(folder) / SETTINGS
    if not path.is_file():
        raise BadInput(f"{folder} holds no run to resume: it has no {SETTINGS}")
    return from_mapping(TrainSettings, read_yaml(path), str(path))


ENDS = ("train", "val", "out", "epochs", "max_steps", "strict", "tensorboard")
"""The settings that a resumed run may change: where its files are, when it ends, what it says."""


def refuse_another_run(settings: TrainSettings, begun: TrainSettings) -> None:
    """Refuse to continue a run with settings under which its steps would have been others."""
    now, then = to_mapping(settings), to_mapping(begun)
    if now["bf16"] is None:
        now["bf16"] = then["bf16"]
    changed = [name for name in then if name not in ENDS and now[name] != then[name]]
    if changed:
        raise BadInput(
            f"{settings.out} was begun with other settings ({', '.join(changed)}): leave them out, "
            "or give another --out for a new run"
        )
