"""One training run from settings to a saved model."""

import contextlib
import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import EarlyStoppingCallback, TrainingArguments, set_seed
from transformers.trainer import OPTIMIZER_NAME, TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.utils import logging as transformers_logging

from ..backbones.lean import make_lean
from ..backbones.packed import has_bfloat16
from ..data.vocabulary import Vocabulary
from ..decoding.settings import Search
from ..errors import BadInput, MissingExtra
from ..files import disk_errors, write_text
from ..models.catalogue import FROM_SCRATCH, AnySystem, Built, build
from ..models.latent_seq2seq import LatentSeq2Seq
from ..models.saving import WEIGHTS
from ..settings import from_mapping, to_mapping, to_yaml
from .callbacks import CollapseAlarm, History, ProgressBar
from .pairs import PRINTS, fingerprints, measure, read_pairs, refuse_other_pairs, tell_cut
from .settings import SETTINGS, TrainSettings, refuse_another_run, resumed_settings
from .trainer import Collator, ElboTrainer, Pairs

CHECKPOINTS = "checkpoints"


def train(
    settings: TrainSettings, resume: bool = False, kernel: nn.Module | None = None
) -> AnySystem:
    """Train a model and save it to `settings.out`.

    The folder then holds the model with the lowest validation loss, its tokenizer,
    `settings.yaml` (all settings, resolved), `pairs.json` (what its pairs hash to), `history.jsonl`
    (all logged numbers) and `checkpoints/`, from which `resume` continues to the same weights as a
    run without interruption.

    Args:
        settings: the run.
        resume: continue from the newest checkpoint in `settings.out`.
        kernel: a gpytorch kernel, when the settings ask for one.
    """
    processes = os.environ.get("WORLD_SIZE", "1")  # as torchrun and its like set it
    if processes not in ("", "0", "1"):
        raise BadInput(
            f"training in {processes} processes (WORLD_SIZE) cannot be done yet: start one, "
            "without torchrun or accelerate"
        )
    folder = Path(settings.out)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file: give a folder for the model")
    if resume:
        refuse_another_run(settings, resumed_settings(folder))
    checkpoints = folder / CHECKPOINTS
    checkpoint = _newest(checkpoints)
    if not resume and (checkpoint is not None or (folder / WEIGHTS).exists()):
        raise BadInput(
            f"{folder} holds a run already: add --resume to continue it, or give another --out"
        )
    pairs = read_pairs(settings.train)
    validation = read_pairs(settings.val)
    prints = fingerprints(pairs, validation)
    if resume:
        refuse_other_pairs(folder, prints)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = replace(
        settings, bf16=has_bfloat16(device) if settings.bf16 is None else settings.bf16
    )
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / SETTINGS, to_yaml(settings))
    write_text(folder / PRINTS, json.dumps(prints))

    set_seed(settings.seed)
    built = _begin(settings, pairs, kernel)
    model, codec = built.model, built.codec
    model.generation_config.spread = settings.spread
    make_lean(model)
    if settings.search:
        model.generation_config.search = to_mapping(from_mapping(Search, settings.search, "search"))
    if not any(weight.requires_grad for weight in model.parameters()):
        _save(built, folder)
        return model.eval()
    lengths, cut = measure(codec, pairs)
    tell_cut(cut, codec.max_length, settings.max_length, settings.strict)
    trainer = ElboTrainer(
        objective=settings.objective,
        lengths=lengths,
        model=model,
        args=_arguments(settings, checkpoints, len(pairs)),
        data_collator=Collator(codec),
        train_dataset=Pairs(pairs),
        eval_dataset=Pairs(validation),
        callbacks=[
            EarlyStoppingCallback(settings.patience),
            ProgressBar(),
            History(folder),
            CollapseAlarm(),
        ],
    )
    for default in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(default)
    with disk_errors(folder), _quiet():
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        _save(built, folder)
    return model.eval()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' own log: our bar and lines say what it would."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)


def _newest(checkpoints: Path) -> Path | None:
    """The newest checkpoint that is whole: a run may have been killed while it wrote one.

    Raises:
        BadInput: when there are some and none is whole: to start again would be no continuing.
    """
    whole = []
    begun = list(checkpoints.glob("checkpoint-*/" + TRAINER_STATE_NAME))  # written last
    for state in begun:
        with contextlib.suppress(ValueError):
            step = json.loads(state.read_bytes())["global_step"]
            if _ends_well(state.parent):
                whole.append((step, state.parent))
    if begun and not whole:
        raise BadInput(
            f"every checkpoint in {checkpoints} is damaged or was cut short: "
            "copy one there again, or remove the folder to start anew"
        )
    return max(whole, default=(0, None))[1]


def _ends_well(checkpoint: Path) -> bool:
    """Whether the weights and the optimizer's state have their ends, without reading all of them.

    What `torch.save` writes is a zip file, whose directory stands last.
    """
    try:
        with safe_open(checkpoint / WEIGHTS, framework="pt"):
            pass
    except (OSError, SafetensorError):
        return False
    states = [*checkpoint.glob("*.pt"), *checkpoint.glob("*.pth")]
    return any(state.name == OPTIMIZER_NAME for state in states) and all(
        map(zipfile.is_zipfile, states)
    )


def _begin(
    settings: TrainSettings, pairs: list[tuple[str, str]], kernel: nn.Module | None
) -> Built:
    """The system at step 0."""
    if settings.backbone not in FROM_SCRATCH:
        model = LatentSeq2Seq.from_backbone(
            settings.backbone, settings.latent, settings.lora, kernel
        )
        return Built(model, model.codec(settings.backbone, settings.max_length))
    if settings.lora is not None:
        raise BadInput(f"{settings.backbone} is trained from scratch: leave out --lora")
    words = Vocabulary.build(
        (text for pair in pairs for text in pair),
        settings.vocabulary.size,
        settings.vocabulary.lowercase,
    )
    return build(settings.backbone, settings.network, settings.latent, words, settings.max_length)


def _save(built: Built, folder: Path) -> None:
    with disk_errors(folder):
        built.model.save_pretrained(folder)
        built.codec.save_pretrained(folder)


def _arguments(settings: TrainSettings, checkpoints: Path, pairs: int) -> TrainingArguments:
    steps_per_epoch = -(-pairs // settings.batch_size)
    every = settings.eval_every or steps_per_epoch
    if settings.max_steps is not None:
        every = min(every, settings.max_steps)
    report_to = []
    if settings.tensorboard:
        try:
            import tensorboard  # noqa: F401
        except ImportError:
            raise MissingExtra("tensorboard", "tensorboard") from None
        report_to = ["tensorboard"]
    arguments = TrainingArguments(
        output_dir=str(checkpoints),
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant" if settings.decay is None else "reduce_lr_on_plateau",
        lr_scheduler_kwargs={}
        if settings.decay is None
        else {"factor": settings.decay, "patience": 0},
        optim="adamw_torch_fused",
        weight_decay=0.0,  # AdamW without decay is Adam
        adam_beta1=settings.betas[0],
        adam_beta2=settings.betas[1],
        max_grad_norm=settings.clip,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        bf16=bool(settings.bf16),
        use_cpu=not torch.cuda.is_available(),
        eval_strategy="steps",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=False,
        restore_callback_states_from_checkpoint=True,
        logging_steps=min(10, every),
        logging_nan_inf_filter=False,
        seed=settings.seed,
        report_to=report_to,
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    # With more, `Trainer` wraps the model in DataParallel, which cannot gather an `ElboOutput`, and
    # multiplies the batch by their number.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments
