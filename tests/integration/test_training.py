"""`polyphrase train` on sixty toy pairs."""

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gpytorch
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, TrainingArguments

from polyphrase.api import load
from polyphrase.backbones.backbone import load_seq2seq
from polyphrase.latent.config import LatentConfig
from polyphrase.models.latent_seq2seq import LatentSeq2Seq
from polyphrase.settings import from_mapping, read_yaml, to_mapping
from polyphrase.training.callbacks import PosteriorCollapse, ProgressBar
from polyphrase.training.objective import Objective
from polyphrase.training.run import train
from polyphrase.training.settings import TrainSettings, resumed_settings
from polyphrase.training.trainer import Collator, ElboTrainer, Pairs

Command = Callable[..., int]
QUICK = ("--batch-size", 8, "--learning-rate", 3e-3, "--no-bf16")


@pytest.fixture
def begin(command: Command, toy: Path, tiny_backbone: Path) -> Command:
    """`polyphrase train` with the toy pairs and the tiny backbone."""
    files = ("--train", toy / "train.tsv", "--val", toy / "val.tsv", "--backbone", tiny_backbone)
    return lambda out, *flags: command("train", *files, "--out", out, *QUICK, *flags)


def history(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same_weights(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_learns_and_leaves_everything_behind(
    begin: Command, tmp_path: Path, tiny_backbone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    assert begin(out, "--max-steps", 80, "--eval-every", 20, "--spread", 3, "--tensorboard") == 0
    log = history(out)
    bound = [entry["eval_loss"] for entry in log if "eval_loss" in entry]
    assert len(bound) == 4
    assert bound[-1] < bound[0] - 0.3
    kl = [entry["eval_kl"] for entry in log if "eval_kl" in entry]
    assert all(0 < value < 200 for value in kl)
    assert kl[-1] > 1e-3  # the toy language hardly varies
    nll = [entry["nll"] for entry in log if "nll" in entry]
    assert nll[-1] < nll[0] - 0.5
    assert {"active", "kl_floor", "correlation"} <= log[0].keys()
    shown = capsys.readouterr().err
    assert len(re.findall(r"step +\d+  valid  nll [\d.]+  kl [\d.]+  active \d+  loss", shown)) == 4
    assert "step     10  train  nll" in shown
    assert shown.endswith(f"{out}: trained; try polyphrase paraphrase --model {out}\n")

    settings = resumed_settings(out)
    values = read_yaml(out / "settings.yaml")
    assert values == to_mapping(settings)
    assert values.keys() == set(TrainSettings.__dataclass_fields__)
    assert (settings.max_steps, settings.batch_size, settings.bf16) == (80, 8, False)
    assert settings.latent == LatentConfig()
    assert from_mapping(TrainSettings, values) == settings

    events = list((out / "checkpoints").rglob("events.out.tfevents*"))
    assert len(events) == 1
    assert events[0].stat().st_size > 1000
    rewriter = load(out, device="cpu")
    assert rewriter.spread == 3
    assert len(rewriter.generate(["how do i learn music ?"], n=4)[0]) == 4
    names = {path.name for path in out.iterdir()}
    assert {"config.json", "model.safetensors", "generation_config.json", "README.md",
            "tokenizer.json", "settings.yaml", "history.jsonl"} <= names  # fmt: skip
    assert not list(out.rglob("*.bin")), "weights are safetensors"


def test_early_stopping_keeps_the_best(begin: Command, tmp_path: Path) -> None:
    """A learning rate that soon does harm: it stops after `patience`, and the best stays."""
    flags = ("--learning-rate", 0.03, "--eval-every", 4, "--patience", 3, "--epochs", 40)
    assert begin(tmp_path, *flags) == 0
    losses = {
        entry["step"]: entry["eval_loss"] for entry in history(tmp_path) if "eval_loss" in entry
    }
    best = min(losses, key=losses.__getitem__)
    assert max(losses) == best + 3 * 4 < 40 * 8
    assert_same_weights(tmp_path, tmp_path / "checkpoints" / f"checkpoint-{best}")


def stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    end = ProgressBar.on_step_end

    def interrupted(self: ProgressBar, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if state.global_step == step:
            raise KeyboardInterrupt
        end(self, args, state, control, **rest)

    monkeypatch.setattr(ProgressBar, "on_step_end", interrupted)


LONG = ("--max-steps", 24, "--eval-every", 6)


@pytest.fixture(scope="module")
def uninterrupted(toy: Path, tiny_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    settings = TrainSettings(
        train=str(toy / "train.tsv"), val=str(toy / "val.tsv"), out=str(out), max_steps=24,
        backbone=str(tiny_backbone), batch_size=8, learning_rate=3e-3, bf16=False, eval_every=6,
    )  # fmt: skip
    train(settings)
    return out


@pytest.mark.parametrize("step", [7, 12, 20])
def test_an_interrupted_run_ends_with_the_same_weights(
    step: int, begin: Command, command: Command, tmp_path: Path, uninterrupted: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with monkeypatch.context() as patch:
        stop_at(step, patch)
        assert begin(tmp_path, *LONG) == 130
    assert not (tmp_path / "model.safetensors").exists()
    assert command("train", "--out", tmp_path, "--resume") == 0
    assert_same_weights(tmp_path, uninterrupted)
    old, new = history(uninterrupted), history(tmp_path)
    assert [entry.get("eval_loss") for entry in new] == [entry.get("eval_loss") for entry in old]


def test_a_checkpoint_that_was_cut_short_is_passed_over(
    begin: Command, tmp_path: Path, uninterrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill while the newest was being written: the one before it is whole."""
    with monkeypatch.context() as patch:
        stop_at(13, patch)
        assert begin(tmp_path, *LONG) == 130
    newest = tmp_path / "checkpoints" / "checkpoint-12"
    (newest / "trainer_state.json").unlink()
    (newest / "optimizer.pt").write_bytes(b"")
    assert begin(tmp_path, *LONG, "--resume") == 0
    assert_same_weights(tmp_path, uninterrupted)


def test_a_run_is_not_overwritten_and_what_is_not_there_not_resumed(
    begin: Command, command: Command, tmp_path: Path, uninterrupted: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    before = weights(uninterrupted)
    assert begin(uninterrupted, *LONG) == 2
    told = capsys.readouterr().err
    assert told == (
        f"polyphrase: {uninterrupted} holds a run already: add --resume to continue it, "
        "or give another --out\n"
    )
    assert all(torch.equal(weight, before[name]) for name, weight in weights(uninterrupted).items())
    assert command("train", "--out", tmp_path / "nothing", "--resume") == 2
    assert "holds no run to resume" in capsys.readouterr().err


def test_adapters_are_all_that_a_folder_holds(
    begin: Command, tmp_path: Path, tiny_backbone: Path
) -> None:
    assert begin(tmp_path, "--lora", 2, "--max-steps", 16, "--eval-every", 8) == 0
    stored = weights(tmp_path)
    assert all(".lora_" in name or name.startswith(("latent.", "injection.")) for name in stored)
    assert any(
        ".lora_B." in name and bool(weight.abs().max() > 0) for name, weight in stored.items()
    )
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["base"] == str(tiny_backbone)
    assert str(tiny_backbone) in (tmp_path / "README.md").read_text()

    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    base = load_seq2seq(str(tiny_backbone))
    own = dict(model.hugging_face.network.named_parameters())
    for name, weight in base.named_parameters():
        twin = own.get(name, own.get(name.replace(".weight", ".base_layer.weight")))
        assert twin is not None
        assert torch.equal(twin, weight)
    codec = model.codec(str(tmp_path))
    batch = codec.pairs(["how do i learn music ?"], ["what can i do to learn music ?"])
    labels = batch.pop("labels")
    with torch.inference_mode():
        adapted = model.elbo(batch, labels, sample=False)
        whole = load(tmp_path, device="cpu").model
        merged = whole.elbo(batch, labels, sample=False)
    assert not any(".lora_" in name for name, _ in whole.named_parameters())
    torch.testing.assert_close(adapted.nll, merged.nll, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(adapted.kl, merged.kl, rtol=1e-4, atol=1e-4)


def test_an_interrupted_run_of_adapters_too(
    begin: Command, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--lora", 2, "--max-steps", 12, "--eval-every", 4)
    assert begin(tmp_path / "whole", *flags) == 0
    with monkeypatch.context() as patch:
        stop_at(6, patch)
        assert begin(tmp_path / "cut", *flags) == 130
    assert command("train", "--out", tmp_path / "cut", "--resume") == 0
    assert_same_weights(tmp_path / "cut", tmp_path / "whole")


def test_bfloat16_learns_and_keeps_float32_weights(begin: Command, tmp_path: Path) -> None:
    assert begin(tmp_path, "--bf16", "--max-steps", 40, "--eval-every", 20) == 0
    assert all(weight.dtype == torch.float32 for weight in weights(tmp_path).values())
    log = [entry for entry in history(tmp_path) if "nll" in entry]
    assert log[-1]["nll"] < log[0]["nll"] - 0.3
    assert all(torch.isfinite(torch.tensor(list(entry.values()))).all() for entry in log)


def test_a_dead_latent_is_told_in_words(begin: Command, tmp_path: Path) -> None:
    flags = ("--prior", "normal", "--posterior", "diagonal", "--max-steps", 4, "--eval-every", 2)
    yaml = tmp_path / "dead.yaml"
    yaml.write_text("latent:\n  start_at_prior: true\n")
    dead = ("--kl-weight", 1e6, "--learning-rate", 0.3, "--config", yaml)
    with pytest.warns(PosteriorCollapse, match="no latent dimension is active") as told:
        assert begin(tmp_path / "dead", *flags, *dead, "--max-steps", 60, "--eval-every", 20) == 0
    words = [str(warning.message) for warning in told if warning.category is PosteriorCollapse]
    assert len(words) == 1
    assert "z says nothing of the source" in words[0]
    assert "--annealing-steps" in words[0]


def test_gradients_add_up_over_small_batches(
    toy: Path, tiny_backbone: Path, tmp_path: Path
) -> None:
    """Two batches of four are one of eight: every target token weighs the same."""
    lines = (toy / "train.tsv").read_text().splitlines()[:16]
    pairs = [(line.partition("\t")[0], line.partition("\t")[2]) for line in lines]
    for row in range(0, 16, 3):  # of very different lengths
        pairs[row] = (pairs[row][0], "fish")

    def after(batch_size: int, accumulate: int) -> tuple[dict[str, Tensor], list[float]]:
        torch.manual_seed(0)
        network = load_seq2seq(str(tiny_backbone), dropout_rate=0.0)
        model = LatentSeq2Seq.from_backbone(str(tiny_backbone), LatentConfig())
        model.backbone.network = network
        model.elbo = partial(model.elbo, sample=False)  # type: ignore[method-assign] # no noise
        codec = model.codec(str(tiny_backbone))
        args = TrainingArguments(
            output_dir=str(tmp_path), max_steps=3, learning_rate=1e-2, optim="sgd", use_cpu=True,
            per_device_train_batch_size=batch_size, gradient_accumulation_steps=accumulate,
            max_grad_norm=1e9, lr_scheduler_type="constant", remove_unused_columns=False,
            logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True,
            dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = ElboTrainer(
            objective=Objective(),
            lengths=[(codec.length(source), codec.length(target)) for source, target in pairs],
            model=model, args=args, data_collator=Collator(codec), train_dataset=Pairs(pairs),
        )  # fmt: skip
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return {name: weight.detach() for name, weight in model.named_parameters()}, losses

    whole, losses = after(8, 1)
    parts, others = after(4, 2)
    assert others == pytest.approx(losses, rel=1e-4)
    start = dict(LatentSeq2Seq.from_backbone(str(tiny_backbone), LatentConfig()).named_parameters())
    assert sum(not torch.equal(weight, start[name]) for name, weight in whole.items()) > 20
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight, rtol=1e-4, atol=1e-6)


def test_a_kernel_object_of_gpytorch_trains(toy: Path, tiny_backbone: Path, tmp_path: Path) -> None:
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5))
    before = {name: weight.detach().clone() for name, weight in kernel.named_parameters()}
    settings = TrainSettings(
        train=str(toy / "train.tsv"), val=str(toy / "val.tsv"), out=str(tmp_path), max_steps=12,
        backbone=str(tiny_backbone), batch_size=8, learning_rate=3e-3, bf16=False, eval_every=6,
    )  # fmt: skip
    model = train(settings, kernel=kernel)
    assert isinstance(model, LatentSeq2Seq)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    found = dict(loaded.latent.kernel.kernel.named_parameters())
    assert found.keys() == before.keys()
    assert any(not torch.equal(found[name], weight) for name, weight in before.items())
    assert type(loaded.latent.kernel.kernel.base_kernel) is gpytorch.kernels.MaternKernel
    assert len(load(tmp_path).generate(["how do i learn music ?"], n=2, spread=4.0)[0]) == 2


def test_a_deterministic_model_and_a_later_latent(
    begin: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--prior none` is the same code; what it saves is a backbone for the next run."""
    assert begin(tmp_path / "t5", "--prior", "none", "--max-steps", 8, "--eval-every", 4) == 0
    assert json.loads((tmp_path / "t5" / "config.json").read_text())["latent"] is None
    assert "kl" not in capsys.readouterr().err
    assert not any("kl" in entry for entry in history(tmp_path / "t5"))
    rewriter = load(tmp_path / "t5")
    assert rewriter.spread == 0
    assert len(set(rewriter.generate(["how do i learn music ?"], n=5)[0])) == 5
    shutil.rmtree(tmp_path / "t5" / "checkpoints")
