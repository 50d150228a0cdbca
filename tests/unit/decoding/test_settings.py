"""Numbers that no search can be run with."""

from typing import Any

import pytest

from polyphrase.decoding.settings import Search
from polyphrase.errors import BadInput


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["temperature", "length_penalty", "diversity"])
def test_a_number_that_is_not_finite_is_refused(name: str, value: float) -> None:
    over: dict[str, Any] = {name: value}
    with pytest.raises(BadInput, match=f"^{name} is {value}: give a finite number"):
        Search(**over)
