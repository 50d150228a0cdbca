"""`polyphrase train`: what it takes, what it refuses, what it leaves behind."""

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from polyphrase.errors import PolyphraseWarning
from polyphrase.settings import read_yaml
from polyphrase.training import run
from polyphrase.training.settings import TrainSettings, refuse_another_run

Command = Callable[..., int]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def values(toy: Path, tiny_backbone: Path, tmp_path: Path) -> dict[str, Any]:
    """The settings of a run of two steps."""
    return {
        **{"train": str(toy / "train.tsv"), "val": str(toy / "val.tsv")},
        **{"out": str(tmp_path / "model"), "backbone": str(tiny_backbone)},
        **{"max_steps": 2, "batch_size": 8, "bf16": False},
    }


@pytest.fixture
def config(tmp_path: Path) -> Callable[[Any], Path]:
    """Settings as a file."""

    def write(content: Any) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return write


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[TrainSettings]:
    """The settings that runs were begun with, none of which runs."""
    begun: list[TrainSettings] = []
    monkeypatch.setattr(run, "train", lambda settings, resume: begun.append(settings))
    return begun


def refused(captured: Captured) -> str:
    """The one sentence on standard error."""
    out, err = captured.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("polyphrase: ")
    return err.removeprefix("polyphrase: ").rstrip("\n")


def test_flags_go_before_yaml_and_yaml_before_a_preset(
    command: Command,
    values: dict[str, Any],
    config: Callable[[Any], Path],
    settled: list[TrainSettings],
) -> None:
    file = config({**values, "latent": {"kernel": {"r": 0.25, "noise": 0.5}}, "seed": 5})
    flags = ("--r", 4, "--kl-weight", 0.5, "--batch-size", 3, "--no-bf16")
    assert command("train", "--config", file, "--preset", "paper", *flags) == 0
    found = settled[0]
    assert found.latent is not None
    assert found.latent.kernel.r == 4.0
    assert found.latent.kernel.noise == 0.5
    assert (found.latent.kernel.v, found.latent.posterior, found.spread) == (0.82, "diagonal", 7.0)
    assert (found.objective.kl_weight, found.batch_size, found.seed) == (0.5, 3, 5)


def test_none_and_zero_switch_off(
    command: Command,
    values: dict[str, Any],
    config: Callable[[Any], Path],
    settled: list[TrainSettings],
) -> None:
    file = config({**values, "lora": {"rank": 4}, "latent": {"prior": "normal"}})
    assert command("train", "--config", file) == 0
    assert command("train", "--config", file, "--prior", "none", "--lora", 0) == 0
    assert settled[0].lora is not None
    assert settled[0].latent is not None
    assert (settled[1].lora, settled[1].latent) == (None, None)


def test_a_system_by_name(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path],
    settled: list[TrainSettings],
) -> None:  # fmt: skip
    assert command("train", "--config", config(values), "--system", "t5-normal") == 0
    assert settled[0].system == "t5-normal"
    assert settled[0].latent is not None
    assert settled[0].latent.prior == "normal"
    assert settled[0].spread == 7.0


@pytest.mark.parametrize(
    ("system", "latent", "spread"),
    [
        ("t5-gp", ("gp", "concat", 512), 7.0),
        ("t5-normal", ("normal", "concat", 512), 7.0),
        ("t5-vamp", ("vamp", "concat", 512), 7.0),
        ("pg-gp", ("gp", "replace", 256), 25.0),
        ("pg-normal", ("normal", "replace", 256), 25.0),
    ],
)
def test_a_preset_keeps_to_the_row(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path],
    settled: list[TrainSettings], system: str, latent: tuple[Any, ...], spread: float,
) -> None:  # fmt: skip
    flags = ("--preset", "paper", "--system", system)
    assert command("train", "--config", config(values), *flags) == 0
    found = settled[0].latent
    assert found is not None
    assert (found.prior, found.injection, found.size) == latent
    assert (found.posterior, found.start_at_prior, found.kernel.r) == ("diagonal", False, 1e-3)
    assert settled[0].spread == spread
    assert command("train", "--config", config(values), *flags, "--latent-size", 9) == 0
    assert settled[1].latent is not None
    assert settled[1].latent.size == 9


@pytest.mark.parametrize("system", ["t5", "pg", "t-cvae"])
def test_a_preset_gives_no_latent_to_a_row_without(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path],
    settled: list[TrainSettings], system: str,
) -> None:  # fmt: skip
    flags = ("--preset", "paper", "--system", system)
    assert command("train", "--config", config(values), *flags) == 0
    assert settled[0].latent is None


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ({"latnt": 3}, "settings: unknown key 'latnt'; did you mean 'latent'?"),
        (
            {"latent": {"kernel": {"nme": "rbf"}}},
            "settings.latent.kernel: unknown key 'nme'; did you mean 'name'?",
        ),
        ({"epochs": "many"}, "settings.epochs: 'many' is not a number"),
        ({"seed": 1.5}, "settings.seed: 1.5 is not a whole number"),
        ({"latent": "gp"}, "settings.latent: 'gp' is not a mapping or null"),
        ({"tensorboard": "yes, please"}, "settings.tensorboard: 'yes, please' is not true or"),
        ({"latent": {"prior": "foo"}}, "settings.latent.prior: 'foo' is not one of 'gp', 'nor"),
        ({"system": 5}, "settings.system: 5 is not a text or null"),
        ({"system": "t5-gq"}, "system 't5-gq' is unknown; did you mean 't5-gp'?"),
        ({"batch_size": 0}, "batch_size is 0: give a positive number"),
        ({"train": None}, "train needs --train: give files of 'source<TAB>target' lines"),
        ({"train": "missing.tsv"}, "missing.tsv: No such file or directory; check the name"),
        ("- a\n- b\n", "{file}: expected 'key: value' lines, found a list"),
        ("a: [1\n", "{file} is not valid YAML: "),
    ],
)
def test_a_wrong_file_is_one_sentence(
    command: Command,
    values: dict[str, Any],
    config: Callable[[Any], Path],
    capsys: Captured,
    over: dict[str, Any] | str,
    sentence: str,
) -> None:
    file = config(over if isinstance(over, str) else {**values, **over})
    assert command("train", "--config", file) == 2
    assert refused(capsys).startswith(sentence.format(file=file))
    assert not Path(values["out"]).exists()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--prior", "foo"), "settings.latent.prior: 'foo' is not one of"),
        (("--preset", "foo"), "preset 'foo' is unknown: 'paper' is the one there is"),
        (("--lora", -2), "the rank of LoRA is -2: give 1 or more"),
        (("--v", -1), "kernel.v is -1.0: give a finite number above 0"),
        (("--learning-rate", 0), "learning_rate is 0.0: give a positive number"),
        (("--system", "t5", "--posterior", "diagonal"), "t5 has no latent: leave out --posterior,"),
        (
            ("--system", "pg", "--latent-size", 8, "--v", 2),
            "pg has no latent: leave out --latent-size and --v, or add --prior for a latent",
        ),
        (("--prior", "none", "--kernel", "rbf"), "--prior none has no latent: leave out --kernel"),
        (("--config", "missing.yaml"), "missing.yaml: No such file or directory; give a YAML"),
        (("--resume",), "{out} holds no run to resume: it has no settings.yaml"),
    ],
)
def test_a_wrong_flag_is_one_sentence(
    command: Command,
    values: dict[str, Any],
    config: Callable[[Any], Path],
    capsys: Captured,
    flags: tuple[object, ...],
    sentence: str,
) -> None:
    assert command("train", "--config", config(values), *flags) == 2
    assert refused(capsys).startswith(sentence.format(out=values["out"]))
    assert not Path(values["out"]).exists()


def test_a_prior_gives_a_row_without_a_latent_one(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path],
    settled: list[TrainSettings],
) -> None:  # fmt: skip
    flags = ("--system", "t5", "--prior", "normal", "--posterior", "diagonal")
    assert command("train", "--config", config(values), *flags) == 0
    assert settled[0].latent is not None
    assert (settled[0].latent.prior, settled[0].latent.posterior) == ("normal", "diagonal")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "pairs.tsv is empty; give a file with one line per example"),
        ("a\tb\nno tab\n", "pairs.tsv, line 2: no tab; write source<tab>reference"),
        (b"a\tb\nc\xe9\td\n", "pairs.tsv, line 2, byte 2: not UTF-8; convert the file to UTF-8"),
    ],
)
@pytest.mark.parametrize("which", ["train", "val"])
def test_wrong_pairs_are_one_sentence(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path], capsys: Captured,
    tmp_path: Path, which: str, content: str | bytes, sentence: str,
) -> None:  # fmt: skip
    pairs = tmp_path / "pairs.tsv"
    pairs.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert command("train", "--config", config({**values, which: str(pairs)})) == 2
    assert sentence in refused(capsys)
    assert not Path(values["out"]).exists()


def test_texts_that_are_cut_are_told_or_refused(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path], capsys: Captured
) -> None:
    flags = ("--config", config(values), "--max-length", 5)
    assert command("train", *flags, "--strict") == 2
    assert refused(capsys) == (
        "60 sources and 60 targets would be cut to 5 tokens: raise --max-length, or leave out "
        "--strict"
    )
    told = "60 sources and 60 targets were cut to 5 tokens: raise --max-length"
    with pytest.warns(PolyphraseWarning, match=f"^{told}$"):
        assert command("train", *flags) == 0


def test_one_file_is_not_both(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path], capsys: Captured,
    tmp_path: Path,
) -> None:  # fmt: skip
    link = tmp_path / "link.tsv"
    link.symlink_to(values["train"])
    assert command("train", "--config", config(values), "--val", link) == 2
    assert refused(capsys).startswith(f"{link} is both --train and --val: give validation pairs")


def test_where_no_folder_can_be(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path], capsys: Captured,
    tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "file").write_text("mine")
    assert command("train", "--config", config(values), "--out", tmp_path / "file") == 2
    assert refused(capsys) == f"{tmp_path / 'file'} is a file: give a folder for the model"
    assert (tmp_path / "file").read_text() == "mine"


def test_a_backbone_that_is_none(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path], capsys: Captured,
    tiny_model: Path, toy: Path,
) -> None:  # fmt: skip
    file = config(values)
    assert command("train", "--config", file, "--backbone", toy) == 2
    assert refused(capsys) == f"{toy} is not a model folder: it has no config.json"
    assert command("train", "--config", file, "--backbone", tiny_model) == 2
    assert refused(capsys).startswith(f"{tiny_model} is a trained model already: give the backbone")


def test_settings_beside_the_model_make_the_same_model(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path], tmp_path: Path
) -> None:
    assert command("train", "--config", config(values), "--seed", 3, "--v", 1.5) == 0
    out = Path(values["out"])
    written = read_yaml(out / "settings.yaml")
    assert set(written) == set(TrainSettings.__dataclass_fields__)
    assert written["seed"] == 3
    assert written["latent"]["kernel"]["v"] == 1.5
    assert written["bf16"] is False
    again = tmp_path / "again"
    assert command("train", "--config", out / "settings.yaml", "--out", again) == 0
    assert (again / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()
    assert read_yaml(again / "settings.yaml") == {**written, "out": str(again)}
    for path in (path for path in out.iterdir() if path.is_file()):
        assert path.suffix in {".json", ".jsonl", ".yaml", ".md", ".safetensors"}


@pytest.fixture
def finished(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path], capsys: Captured
) -> Path:
    """A run that came to its end."""
    assert command("train", "--config", config(values)) == 0
    capsys.readouterr()
    return Path(values["out"])


def test_a_finished_run_is_not_trained_further_by_resuming(
    command: Command, finished: Path
) -> None:
    before = {name: (finished / name).read_bytes() for name in KEPT}
    assert command("train", "--out", finished, "--resume") == 0
    assert {name: (finished / name).read_bytes() for name in KEPT} == before


KEPT = ("model.safetensors", "settings.yaml", "config.json")


def test_a_finished_run_can_go_on(command: Command, finished: Path) -> None:
    assert command("train", "--out", finished, "--resume", "--max-steps", 4) == 0
    assert read_yaml(finished / "settings.yaml")["max_steps"] == 4
    log = [json.loads(line) for line in (finished / "history.jsonl").read_text().splitlines()]
    assert max(entry["step"] for entry in log) == 4


def test_a_run_that_lost_patience_stays_where_it_is(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path]
) -> None:
    file = config({**values, "learning_rate": 0.5, "eval_every": 1, "patience": 1, "max_steps": 30})
    assert command("train", "--config", file) == 0
    out = Path(values["out"])
    before, log = (out / "model.safetensors").read_bytes(), (out / "history.jsonl").read_text()
    assert log.count("eval_loss") < 30
    assert command("train", "--out", out, "--resume") == 0
    assert (out / "model.safetensors").read_bytes() == before
    assert (out / "history.jsonl").read_text().count("eval_loss") == log.count("eval_loss")


def test_a_run_is_not_resumed_as_another(
    command: Command, finished: Path, config: Callable[[Any], Path], values: dict[str, Any],
    capsys: Captured,
) -> None:  # fmt: skip
    before = {name: (finished / name).read_bytes() for name in KEPT}
    flags = ("--config", config(values), "--resume", "--seed", 9, "--prior", "none")
    assert command("train", *flags) == 2
    assert refused(capsys) == (
        f"{finished} was begun with other settings (latent, seed): leave them out, "
        "or give another --out for a new run"
    )
    assert {name: (finished / name).read_bytes() for name in KEPT} == before


def test_what_a_resumed_run_may_change() -> None:
    begun = TrainSettings(train="a", val="b", out="c", bf16=True)
    refuse_another_run(TrainSettings(train="x", val="y", out="z", max_steps=3, epochs=99.0), begun)


@pytest.mark.parametrize(("flag", "which"), [("--train", "training"), ("--val", "validation")])
def test_a_run_is_not_resumed_on_other_pairs(
    command: Command, finished: Path, toy: Path, tmp_path: Path, capsys: Captured, flag: str,
    which: str,
) -> None:  # fmt: skip
    before = {name: (finished / name).read_bytes() for name in (*KEPT, "pairs.json")}
    moved = tmp_path / "moved.tsv"
    moved.write_bytes((toy / f"{flag[2:]}.tsv").read_bytes())
    assert command("train", "--out", finished, "--resume", flag, moved) == 0
    moved.write_text(moved.read_text() + "how do i like tea ?\twhat can i do to like tea ?\n")
    capsys.readouterr()
    assert command("train", "--out", finished, "--resume", flag, moved) == 2
    assert refused(capsys) == (
        f"{finished} was begun with other {which} pairs: give the ones it began with, "
        "or another --out for a new run"
    )
    after = {name: (finished / name).read_bytes() for name in ("pairs.json", "model.safetensors")}
    assert after == {name: before[name] for name in after}


def test_a_run_without_a_record_of_its_pairs_goes_on(
    command: Command, finished: Path, capsys: Captured
) -> None:
    (finished / "pairs.json").unlink()
    assert command("train", "--out", finished, "--resume") == 0
    (finished / "pairs.json").write_text("{")
    capsys.readouterr()
    assert command("train", "--out", finished, "--resume") == 2
    assert refused(capsys).startswith(f"{finished / 'pairs.json'} is damaged: remove it to go on")


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "trainer_state.json"])
def test_checkpoints_cut_short_are_told(
    command: Command, finished: Path, capsys: Captured, name: str
) -> None:
    file = finished / "checkpoints" / "checkpoint-2" / name
    file.write_bytes(file.read_bytes()[:-50])
    assert command("train", "--out", finished, "--resume") == 2
    assert refused(capsys).startswith(
        f"every checkpoint in {finished / 'checkpoints'} is damaged or was cut short: copy one"
    )


@pytest.mark.parametrize("limit", [60_000, 200_000])
def test_a_full_disk_is_one_sentence(
    command: Command, values: dict[str, Any], config: Callable[[Any], Path], capsys: Captured,
    limit: int,
) -> None:  # fmt: skip
    """Reached while the weights are written, and while the optimizer's state is."""
    file = config(values)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        assert command("train", "--config", file) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.endswith(("File too large", "see that the disk has space and run again"))
    assert command("train", "--config", file, "--resume") == 0
    assert (Path(values["out"]) / "model.safetensors").is_file()
