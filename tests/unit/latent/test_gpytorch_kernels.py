import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gpytorch
import pytest
import torch
from gpytorch import kernels as k

from polyphrase.errors import BadInput
from polyphrase.latent import KernelConfig, Latent, LatentConfig
from polyphrase.latent.gpytorch_kernels import describe, described, evaluate, rebuild
from polyphrase.settings import from_mapping, to_mapping

HIDDEN = 4

DESCRIBABLE: list[Callable[[], Any]] = [
    lambda: k.RBFKernel(),
    lambda: k.RBFKernel(ard_num_dims=HIDDEN),
    lambda: k.RBFKernel(active_dims=(0, 2)),
    lambda: k.ScaleKernel(k.MaternKernel(nu=1.5)),
    lambda: k.ScaleKernel(k.RQKernel()) + k.LinearKernel(),
    lambda: k.RBFKernel(active_dims=[1]) * (k.RQKernel() + k.ConstantKernel()),
    lambda: k.PiecewisePolynomialKernel(q=1),
    lambda: k.PolynomialKernel(power=3),
    lambda: k.SpectralMixtureKernel(num_mixtures=3, ard_num_dims=HIDDEN),
]


@pytest.mark.parametrize("build", DESCRIBABLE)
def test_a_kernel_survives_its_description(build: Callable[[], Any]) -> None:
    kernel = build()
    for parameter in kernel.parameters():
        parameter.data.add_(0.3 * torch.rand_like(parameter))
    description = described(kernel, HIDDEN)
    assert description is not None
    twin = rebuild(description)
    twin.load_state_dict(kernel.state_dict())
    x = torch.randn(2, 5, HIDDEN)
    torch.testing.assert_close(evaluate(twin, x), evaluate(kernel, x))
    assert describe(twin) == description


class OwnKernel(k.Kernel):
    """A user's kernel, which no description can bring back."""

    has_lengthscale = True

    def forward(self, x1: torch.Tensor, x2: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.exp(-torch.cdist(x1, x2) / self.lengthscale)


@pytest.mark.parametrize(
    "build",
    [
        OwnKernel,
        lambda: k.ScaleKernel(OwnKernel()),
        lambda: k.RBFKernel(lengthscale_constraint=gpytorch.constraints.Interval(0.5, 0.6)),
    ],
)
def test_what_cannot_be_described_is_not(build: Callable[[], Any]) -> None:
    assert described(build(), HIDDEN) is None


@pytest.mark.parametrize(
    ("description", "said"),
    [
        (
            {"class": "os.system", "arguments": {}},
            "'os.system' is not a kernel of gpytorch.kernels",
        ),
        ({"class": "Tensor", "arguments": {}}, "'Tensor' is not a kernel"),
        ({"class": None}, "None is not a kernel"),
        ({"class": "RBFKernel"}, "has no arguments"),
        ({"class": "PolynomialKernel", "arguments": {}}, "PolynomialKernel cannot be built"),
    ],
)
def test_a_description_of_no_kernel_is_refused(description: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        rebuild(description)


@pytest.mark.parametrize("build", DESCRIBABLE)
def test_a_latent_with_a_kernel_object_trains_and_travels(build: Callable[[], Any]) -> None:
    latent = Latent(LatentConfig(), HIDDEN, kernel=build())
    h = torch.randn(2, 5, HIDDEN)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0]])
    noise = torch.randn(2, 5, HIDDEN)
    beliefs = latent(h, mask)
    (beliefs.kl() + beliefs.sample(noise).sum()).sum().backward()
    torch.optim.SGD(latent.parameters(), lr=0.01).step()

    config = from_mapping(LatentConfig, to_mapping(latent.config))
    assert config.kernel.name == "gpytorch"
    twin = Latent(config, HIDDEN)
    twin.load_state_dict(latent.state_dict())
    assert torch.equal(twin(h, mask).sample(noise), latent(h, mask).sample(noise))
    assert torch.equal(twin(h, mask).kl(), latent(h, mask).kl())


def test_a_kernel_without_description_is_asked_for_again() -> None:
    latent = Latent(LatentConfig(), HIDDEN, kernel=OwnKernel())
    assert latent.config.kernel == KernelConfig(name="gpytorch")
    with pytest.raises(BadInput, match="hand the kernel object in"):
        Latent(latent.config, HIDDEN)
    again = Latent(latent.config, HIDDEN, kernel=OwnKernel())
    again.load_state_dict(latent.state_dict())


def test_a_kernel_object_leaves_the_random_numbers_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    described(k.SpectralMixtureKernel(num_mixtures=3, ard_num_dims=HIDDEN), HIDDEN)
    assert torch.equal(torch.get_rng_state(), before)


def test_threads_see_the_same_kernel() -> None:
    """Several batches are decoded side by side with one kernel object."""
    kernel = k.ScaleKernel(k.RBFKernel(active_dims=(0, 1))).double()
    states = torch.randn(2, 6, 5, dtype=torch.float64)
    with torch.no_grad():
        expected = evaluate(kernel, states)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as pool, torch.no_grad():
            found = list(pool.map(lambda _: evaluate(kernel, states), range(300)))
    finally:
        sys.setswitchinterval(interval)
    assert all(torch.equal(one, expected) for one in found)
