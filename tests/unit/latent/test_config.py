import math
from typing import Any

import pytest

from polyphrase.errors import BadInput
from polyphrase.latent import KernelConfig, LatentConfig
from polyphrase.settings import from_mapping, to_mapping


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": "rbff"}, "kernel.name is 'rbff': choose one of 'rbf', 'matern12'"),
        ({"scale": "log"}, "kernel.scale is 'log': choose one of 'relative', 'absolute'"),
        ({"v": 0.0}, "kernel.v is 0.0: give a finite number above 0"),
        ({"r": math.nan}, "kernel.r is nan: give a finite number above 0"),
        ({"noise": -0.1}, "kernel.noise is -0.1"),
        ({"gpytorch": {"class": "RBFKernel"}}, "set kernel.name to 'gpytorch'"),
    ],
)
def test_a_kernel_that_cannot_be_is_refused_in_words(values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        KernelConfig(**values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"prior": "gaussian"}, "prior is 'gaussian': choose one of 'gp', 'normal'"),
        ({"posterior": "full"}, "posterior is 'full': choose one of 'correlated', 'diagonal'"),
        ({"injection": "sum"}, "injection is 'sum': choose one of 'concat', 'add'"),
        ({"kl": "half"}, "kl is 'half': choose one of 'full', 'sum', 'none'"),
        ({"size": 0}, "size is 0"),
        ({"components": 0}, "components is 0"),
        ({"prior": "vamp", "kl": "sum"}, "no closed form under the vamp prior"),
    ],
)
def test_a_latent_that_cannot_be_is_refused_in_words(values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        LatentConfig(**values)


def test_settings_travel_as_plain_data() -> None:
    config = LatentConfig(
        prior="vamp", size=3, kernel=KernelConfig(name="matern32", learnable=True)
    )
    assert from_mapping(LatentConfig, to_mapping(config)) == config
