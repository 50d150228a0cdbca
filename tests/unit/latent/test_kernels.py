import pytest
import torch
from torch import Tensor

from polyphrase.errors import NotPositiveDefinite
from polyphrase.latent import KernelConfig, covariance
from polyphrase.latent.kernels import INNER_PRODUCT, STATIONARY, Kernel

NAMES = (*STATIONARY, *INNER_PRODUCT)


def states(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def matrix(h: Tensor, **values: object) -> Tensor:
    found: Tensor = Kernel(KernelConfig(**values))(h).matrix  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("scale", ["relative", "absolute"])
@pytest.mark.parametrize("name", NAMES)
def test_permuting_and_rotating_the_states(name: str, scale: str) -> None:
    h, order = states(2, 6, 4), torch.randperm(6)
    rotation = torch.linalg.qr(states(4, 4)).Q
    before = matrix(h, name=name, scale=scale)
    torch.testing.assert_close(
        matrix(h[:, order], name=name, scale=scale), before[:, order][..., order]
    )
    torch.testing.assert_close(matrix(h @ rotation, name=name, scale=scale), before)


@pytest.mark.parametrize("name", STATIONARY)
def test_moving_all_states_changes_no_stationary_kernel(name: str) -> None:
    h = states(2, 6, 4)
    before = matrix(h, name=name, scale="absolute", r=2.0)
    torch.testing.assert_close(matrix(h + 100, name=name, scale="absolute", r=2.0), before)


@pytest.mark.parametrize("name", NAMES)
def test_the_relative_scale_carries_over_between_backbones(name: str) -> None:
    h = states(2, 6, 4)
    before = matrix(h, name=name, scale="relative")
    torch.testing.assert_close(matrix(0.1 * h, name=name, scale="relative"), 0.01 * before)


def test_the_relative_scale_is_rms_and_median() -> None:
    h = states(1, 6, 4)
    rms = float(h.square().mean().sqrt())
    median = float(torch.pdist(h[0]).median())
    relative = matrix(h, scale="relative", v=0.5, r=0.7)
    torch.testing.assert_close(relative, matrix(h, scale="absolute", v=0.5 * rms, r=0.7 * median))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", ["relative", "absolute"])
@pytest.mark.parametrize(
    "h",
    [
        torch.zeros(1, 4, 3),
        torch.ones(1, 4, 3),
        torch.ones(1, 1, 3),
        torch.tensor([[[1.0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 1, 0]]]),
        1e-20 * torch.randn(1, 4, 3),
    ],
    ids=["zero", "equal", "one", "mostly equal", "tiny"],
)
def test_states_that_are_equal_or_zero(h: Tensor, scale: str, name: str) -> None:
    h = h.clone().requires_grad_()
    factor = Kernel(KernelConfig(name=name, scale=scale, learnable=True))(h)  # type: ignore[arg-type]
    (factor.precision * factor.matrix.detach().max()).sum().backward()
    assert all(part.isfinite().all() for part in factor)
    assert h.grad is not None
    assert h.grad.isfinite().all()


def test_equal_states_are_wholly_correlated() -> None:
    found = matrix(torch.ones(1, 3, 2), scale="absolute", v=2.0, r=1e-4, noise=0.1)
    torch.testing.assert_close(found[0], 4 * (torch.ones(3, 3) + 0.1 * torch.eye(3)).double())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", ["relative", "absolute"])
def test_gradients_in_v_r_and_the_states(name: str, scale: str) -> None:
    kernel = Kernel(KernelConfig(name=name, v=0.8, r=1.5, scale=scale, learnable=True)).double()  # type: ignore[arg-type]
    names, parameters = zip(*kernel.named_parameters(), strict=True)
    # On the relative scale the statistics are constants, so only v and r can be checked there.
    h = states(2, 4, 3).requires_grad_(scale == "absolute" and name != "linear")

    def function(h: Tensor, *values: Tensor) -> Tensor:
        call = dict(zip(names, values, strict=True))
        return torch.func.functional_call(kernel, call, (h,)).precision

    assert torch.autograd.gradcheck(function, (h, *parameters))
    assert names == (("log_v", "log_r") if name in STATIONARY else ("log_v",))


def test_a_matrix_without_a_factor_names_v_r_and_the_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(covariance, "JITTERS", (1e-30,))
    config = KernelConfig(v=3.0, r=0.25, noise=0.0, scale="absolute")
    with pytest.raises(NotPositiveDefinite, match=r"rbf kernel \(v = 3, r = 0.25, .* N = 4"):
        Kernel(config)(torch.ones(1, 4, 2))
