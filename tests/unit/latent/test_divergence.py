"""Against other libraries: tests/golden/test_latent_kl.py."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from polyphrase.errors import BadInput
from polyphrase.latent import covariance, divergence
from polyphrase.latent.covariance import Factor, factorise
from polyphrase.latent.distributions import Gaussian, Mixture, Posterior

G, N, D = 3, 5, 4
FORMS = ["full-full", "full-diagonal", "diagonal-full", "diagonal-diagonal"]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def a_factor(full: bool) -> Factor:
    x = random(G, N, N)
    matrix = x @ x.mT + 0.5 * torch.eye(N, dtype=torch.float64)
    return factorise(matrix, str) if full else Factor.of_variance(matrix.diagonal(dim1=1, dim2=2))


def pair(form: str) -> tuple[Posterior, Gaussian]:
    prior, base = (a_factor(part == "full") for part in form.split("-"))
    posterior = Posterior(random(G, N, D), random(G, N, D), base)
    return posterior, Gaussian(random(G, N, D), prior)


@pytest.mark.parametrize("divergence_of", [divergence.kl, divergence.kl_of_sum])
@pytest.mark.parametrize("form", FORMS)
def test_gradients(form: str, divergence_of: Callable[..., Tensor]) -> None:
    q, p = pair(form)
    assert p.mean is not None

    def function(
        mean: Tensor, log_ratio: Tensor, prior_mean: Tensor, a: Tensor, m: Tensor
    ) -> Tensor:
        def factor(like: Factor, x: Tensor) -> Factor:
            return factorise(x + x.mT, str) if like.full else Factor.of_variance(x)

        posterior = Posterior(mean, log_ratio, factor(q.base, m))
        return divergence_of(posterior, Gaussian(prior_mean, factor(p.covariance, a)))

    halves = [f.matrix / 2 if f.full else f.matrix for f in (p.covariance, q.base)]
    inputs = [x.detach().requires_grad_() for x in (q.mean, q.log_ratio, p.mean, *halves)]
    assert torch.autograd.gradcheck(function, inputs)


@pytest.mark.parametrize("elements", [1, 10**6])
@pytest.mark.parametrize("form", FORMS)
def test_single_precision_states_lose_nothing_else(
    monkeypatch: pytest.MonkeyPatch, form: str, elements: int
) -> None:
    monkeypatch.setattr(covariance, "CHUNK_ELEMENTS", elements)
    q, p = pair(form)
    assert p.mean is not None
    mean, log_ratio, prior_mean = (x.float() for x in (q.mean, q.log_ratio, p.mean))
    found = divergence.kl(Posterior(mean, log_ratio, q.base), Gaussian(prior_mean, p.covariance))
    expected = divergence.kl(q, p)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("form", FORMS)
def test_no_prior_mean_is_a_zero_one(form: str) -> None:
    q, p = pair(form)
    zero = dataclasses.replace(p, mean=torch.zeros_like(q.mean))
    none = dataclasses.replace(p, mean=None)
    assert torch.equal(divergence.kl(q, zero), divergence.kl(q, none))
    assert torch.equal(divergence.kl_of_sum(q, zero), divergence.kl_of_sum(q, none))


@pytest.mark.parametrize("form", FORMS)
def test_dimensions_add_up(form: str) -> None:
    q, p = pair(form)
    by_dimension = divergence.kl_per_dimension(q, p)
    assert by_dimension.shape == (G, D)
    assert (by_dimension >= 0).all()
    torch.testing.assert_close(by_dimension.sum(1), divergence.kl(q, p))


@pytest.mark.parametrize("form", FORMS)
def test_the_sum_bounds_the_full_divergence_from_below(form: str) -> None:
    for _ in range(20):
        q, p = pair(form)
        summed, full = divergence.kl_of_sum(q, p), divergence.kl(q, p)
        assert (summed >= 0).all()
        assert (summed <= full).all()


def test_one_dimension_is_its_own_sum() -> None:
    q, p = pair("full-full")
    assert p.mean is not None
    q = Posterior(q.mean[..., :1], q.log_ratio[..., :1], q.base)
    p = Gaussian(p.mean[..., :1], p.covariance)
    torch.testing.assert_close(divergence.kl_of_sum(q, p), divergence.kl(q, p))


def test_a_posterior_at_its_prior_diverges_by_exactly_nothing() -> None:
    for full in (True, False):
        a, mean = a_factor(full), random(G, N, D)
        q = Posterior(mean, torch.zeros_like(mean), a)
        torch.testing.assert_close(
            divergence.kl(q, Gaussian(mean, a)), torch.zeros(G).double(), rtol=0, atol=1e-12
        )


def test_the_floor_is_reached_at_the_inverse_of_the_precision_alone() -> None:
    a, mean = a_factor(True), random(G, N, D)
    p = Gaussian(mean, a)
    best = -a.precision.diagonal(dim1=1, dim2=2).log().unsqueeze(-1).expand(G, N, D)
    ones = Factor.of_variance(torch.ones(G, N, dtype=torch.float64))
    floor = divergence.mean_field_floor(Posterior(mean, best, ones), p)
    torch.testing.assert_close(divergence.kl(Posterior(mean, best, ones), p), floor)
    assert (floor > 0).all()
    for _ in range(20):
        near = best + 0.1 * random(G, N, D)
        assert (divergence.kl(Posterior(mean, near, ones), p) > floor).all()


@pytest.mark.parametrize("form", ["full-full", "diagonal-full", "diagonal-diagonal"])
def test_no_floor_where_prior_and_posterior_have_one_form(form: str) -> None:
    q, p = pair(form)
    torch.testing.assert_close(divergence.mean_field_floor(q, p), torch.zeros(G).double())
    mixture = Mixture(random(2, D), random(2, D))
    assert not divergence.mean_field_floor(q, mixture).any()


@pytest.mark.parametrize("full", [True, False])
def test_monte_carlo_meets_the_closed_form_for_one_component(full: bool) -> None:
    q = Posterior(random(G, N, D), 0.3 * random(G, N, D), a_factor(full))
    p = Mixture(random(1, D), 0.3 * random(1, D))
    scale = p.log_variance.exp().sqrt()
    ones = Factor.of_variance(torch.ones(G, N, dtype=torch.float64))
    unit = Posterior(  # the same divergence, in units of the prior
        (q.mean - p.mean) / scale, q.log_ratio - p.log_variance, q.base
    )
    expected = divergence.kl(unit, Gaussian(None, ones))
    count = 4000
    draws = torch.stack([divergence.kl(q, p, q.sample(random(G, N, D), 1.0)) for _ in range(count)])
    error = draws.std(0) / count**0.5
    assert ((draws.mean(0) - expected).abs() < 4 * error).all()


def test_a_mixture_without_a_sample_is_refused() -> None:
    q, _ = pair("full-full")
    with pytest.raises(BadInput, match="give it a sample z"):
        divergence.kl(q, Mixture(random(2, D), random(2, D)))
