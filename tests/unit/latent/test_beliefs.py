import math

import pytest
import torch
from torch import Tensor

from polyphrase.errors import BadInput
from polyphrase.latent import Beliefs, KernelConfig, Latent, LatentConfig, beliefs

HIDDEN = 4


def believe(config: LatentConfig, *masks: str) -> tuple[Beliefs, Tensor, Tensor]:
    """Beliefs of a latent away from its start, with the states and the mask behind them."""
    latent = Latent(config, HIDDEN).double()
    with torch.no_grad():
        for parameter in latent.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    mask = torch.tensor([[letter == "x" for letter in text] for text in masks])
    h = torch.randn(*mask.shape, HIDDEN, dtype=torch.float64)
    return latent(h, mask), h, mask


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, HIDDEN, dtype=torch.float64)


CONFIGS = [
    LatentConfig(prior=prior, posterior=posterior)
    for prior in ("gp", "normal", "mixture", "vamp")
    for posterior in ("correlated", "diagonal")
]


@pytest.mark.parametrize("config", CONFIGS)
def test_spread_multiplies_the_covariance(config: LatentConfig) -> None:
    found, _, mask = believe(config, "xxxx", ".xx.")
    epsilon = noise(2, 4)
    assert torch.equal(found.sample(epsilon, spread=0.0), found.mean)
    step = found.sample(epsilon) - found.mean
    torch.testing.assert_close(found.sample(epsilon, spread=9.0) - found.mean, 3 * step)
    assert not found.sample(epsilon)[~mask].any()


@pytest.mark.parametrize("config", CONFIGS)
def test_a_sample_does_not_depend_on_how_many_are_drawn(config: LatentConfig) -> None:
    found, _, _ = believe(config, "xxxx", ".xx.")
    epsilon = noise(3, 2, 4)
    together = found.sample(epsilon)
    assert together.shape == epsilon.shape
    assert torch.equal(together, torch.stack([found.sample(one) for one in epsilon]))


@pytest.mark.parametrize("spread", [-1.0, math.nan, math.inf])
def test_a_spread_that_cannot_be_is_refused(spread: float) -> None:
    found, _, _ = believe(LatentConfig(), "xx")
    with pytest.raises(BadInput, match="give a finite number from 0 up"):
        found.sample(noise(1, 2), spread=spread)


@pytest.mark.parametrize("config", CONFIGS)
def test_long_sentences_are_only_computed_again(
    config: LatentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, gradients = [], []
    for long in (2, 100):
        monkeypatch.setattr(beliefs, "LONG", long)
        torch.manual_seed(1)
        latent = Latent(config, HIDDEN).double()
        h = noise(2, 5).requires_grad_()
        found = latent(h, torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]))
        z = found.sample(noise(2, 5))
        kl = found.kl(z)
        (kl.sum() + z.sin().sum()).backward()
        values.append((kl, z, found.floor(), found.active(), torch.tensor(found.correlation())))
        gradients.append([h.grad, *(p.grad for p in latent.parameters())])
    for ours, theirs in zip(*values, strict=True):
        assert torch.equal(ours, theirs)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_dimensions_of_a_batch_add_up_to_its_mean() -> None:
    for config in CONFIGS:
        found, _, _ = believe(config, "xxxx", ".xx.", "x...")
        by_dimension = found.kl_per_dimension()
        if config.prior in ("mixture", "vamp"):
            assert by_dimension is None
        else:
            assert by_dimension is not None
            torch.testing.assert_close(by_dimension.sum(), found.kl().mean())


def test_reports_leave_the_gradient_alone() -> None:
    latent = Latent(LatentConfig(), HIDDEN).double()
    h = noise(2, 4).requires_grad_()
    found = latent(h, torch.ones(2, 4))
    with torch.no_grad():
        found.correlation(), found.floor(), found.active(), found.kl_per_dimension(), found.kl()
    found.sample(noise(2, 4)).sum().backward()
    assert h.grad is not None
    assert h.grad.abs().sum() > 0


def test_correlation_is_the_mean_off_the_diagonal() -> None:
    found, *_ = believe(LatentConfig(), "xxxx", ".xx.", "x...")
    prior = [p.covariance.matrix[k] for p in found.prior for k in range(len(p.covariance.matrix))]  # type: ignore[union-attr]
    values = []
    for a in prior:
        c = a / (a.diagonal()[:, None] * a.diagonal()).sqrt()
        values += [float(c[i, j].detach()) for i in range(len(c)) for j in range(len(c)) if i != j]
    assert len(values) == 12 + 2
    assert found.correlation() == pytest.approx(sum(map(abs, values)) / len(values), abs=1e-12)


def test_there_is_no_correlation_without_a_kernel_or_a_second_position() -> None:
    assert believe(LatentConfig(prior="normal", posterior="diagonal"), "xxx")[0].correlation() == 0
    assert believe(LatentConfig(), "x..", ".x.")[0].correlation() == 0


def test_active_dimensions_are_those_whose_mean_varies() -> None:
    config = LatentConfig(prior="normal", posterior="diagonal", start_at_prior=False)
    latent = Latent(config, HIDDEN).double()
    with torch.no_grad():
        latent.posterior.mean.weight.copy_(torch.diag(torch.tensor([1.0, 0.11, 0.09, 0.0])))
    h = noise(20, 5)
    h = h / h.std((0, 1), correction=0)
    padded = torch.cat((h, 1e6 * noise(20, 2)), 1)
    mask = torch.tensor([1] * 5 + [0] * 2).expand(20, -1)
    assert latent(padded, mask).active().tolist() == [True, True, False, False]


def test_active_dimensions_are_measured_against_the_prior() -> None:
    h = noise(20, 5)
    for v, expected in ((0.1, True), (100.0, False)):
        config = LatentConfig(kernel=KernelConfig(scale="absolute", v=v, r=2.0))
        found = Latent(config, HIDDEN)(h, torch.ones(20, 5)).active()
        assert found.tolist() == [expected] * HIDDEN
    for prior, tight in (("mixture", False), ("vamp", False)):
        latent = Latent(LatentConfig(prior=prior), HIDDEN).double()  # type: ignore[arg-type]
        assert latent(h, torch.ones(20, 5)).active().all() != tight


def test_the_kind_of_divergence_is_the_configuration_s() -> None:
    kls = {}
    for kind in ("full", "sum", "none"):
        torch.manual_seed(0)
        kls[kind] = believe(LatentConfig(kl=kind), "xxxx", ".xx.")[0].kl()
    assert (kls["full"] > kls["sum"]).all()
    assert (kls["sum"] > 0).all()
    assert not kls["none"].any()
