"""One process on one device."""

from pathlib import Path
from typing import Any

import pytest
from transformers import TrainingArguments

from polyphrase.errors import BadInput
from polyphrase.training import run
from polyphrase.training.settings import TrainSettings

SETTINGS = TrainSettings(train="a", val="b", out="c", bf16=False)


def test_of_several_gpus_one_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def with_two(**options: Any) -> TrainingArguments:
        arguments = TrainingArguments(**options)
        arguments._n_gpu = 2
        return arguments

    monkeypatch.setattr(run, "TrainingArguments", with_two)
    arguments = run._arguments(SETTINGS, tmp_path, 8)
    assert arguments.n_gpu == 1
    assert arguments.train_batch_size == SETTINGS.batch_size


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadInput, match=r"^training in 2 processes .*: start one, without"):
        run.train(SETTINGS)
