"""Numbers that no run can be made with."""

from typing import Any

import pytest

from polyphrase.errors import BadInput
from polyphrase.models.adapters import LoraSettings
from polyphrase.training.objective import Objective
from polyphrase.training.settings import TrainSettings

NAN, INF = float("nan"), float("inf")


def settings(**over: Any) -> TrainSettings:
    return TrainSettings(**{"train": "a", "val": "b", "out": "c", **over})


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ({"learning_rate": INF}, "learning_rate is inf: give a finite number above 0"),
        ({"learning_rate": NAN}, "learning_rate is nan: give a positive number"),
        ({"epochs": INF}, "epochs is inf: give a finite number above 0"),
        ({"spread": INF}, "spread is inf: give a finite number from 0 up"),
        ({"spread": NAN}, "spread is nan: give a finite number from 0 up"),
        ({"spread": -1.0}, "spread is -1.0: give a finite number from 0 up"),
        ({"betas": (0.9, 1.0)}, "betas are 0.9 and 1.0: give two numbers from 0 up, below 1"),
        ({"betas": (-0.1, 0.9)}, "betas are -0.1 and 0.9: give two numbers"),
        ({"betas": (NAN, 0.9)}, "betas are nan and 0.9: give two numbers"),
        ({"seed": -1}, "seed is -1: give a whole number from 0 up, below 2**32"),
        ({"seed": 2**32}, "seed is 4294967296: give a whole number from 0 up"),
    ],
)
def test_a_run_that_cannot_be_is_refused(over: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as refused:
        settings(**over)
    assert str(refused.value).startswith(sentence)


def test_a_spread_of_0_is_the_posterior_mean() -> None:
    assert settings(spread=0.0).spread == 0.0


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("name", ["kl_weight", "free_bits"])
def test_an_objective_is_finite(name: str, value: float) -> None:
    over: dict[str, Any] = {name: value}
    with pytest.raises(BadInput, match=f"^{name} is {value}: give a finite number from 0 up$"):
        Objective(**over)


@pytest.mark.parametrize("alpha", [0.0, -1.0, NAN, INF])
def test_adapters_have_a_positive_alpha(alpha: float) -> None:
    with pytest.raises(BadInput, match=f"alpha of LoRA is {alpha}: give a finite number above 0"):
        LoraSettings(alpha=alpha)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, NAN])
def test_adapters_keep_something(dropout: float) -> None:
    with pytest.raises(BadInput, match=f"dropout of LoRA is {dropout}: give a number from 0 up"):
        LoraSettings(dropout=dropout)
