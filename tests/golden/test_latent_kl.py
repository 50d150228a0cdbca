"""The KL, the kernels and their limits against torch.distributions, gpytorch and closed forms."""

import math

import gpytorch
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from polyphrase.latent import KernelConfig, Latent, LatentConfig

KERNELS = ("rbf", "matern12", "matern32", "matern52", "rational_quadratic", "linear", "cosine")
POSTERIORS = ("correlated", "diagonal")
HIDDEN = 5


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def dense_kernel(config: KernelConfig, h: Tensor) -> Tensor:
    """A of one sentence [N, D_h], written out position by position."""
    v, r = config.v, config.r
    n = len(h)
    if config.scale == "relative":
        v *= float(h.square().mean().sqrt())
        pairs = [float((h[i] - h[j]).norm()) for i in range(n) for j in range(i)]
        r *= sorted(pairs)[(len(pairs) - 1) // 2]
    k = h.new_zeros(n, n)
    for i in range(n):
        for j in range(n):
            x, y = h[i], h[j]
            a = float((x - y).norm()) / r
            match config.name:
                case "rbf":
                    k[i, j] = math.exp(-(a**2) / 2)
                case "matern12":
                    k[i, j] = math.exp(-a)
                case "matern32":
                    k[i, j] = (1 + 3**0.5 * a) * math.exp(-(3**0.5) * a)
                case "matern52":
                    k[i, j] = (1 + 5**0.5 * a + 5 * a**2 / 3) * math.exp(-(5**0.5) * a)
                case "rational_quadratic":
                    k[i, j] = 1 / (1 + a**2 / 2)
                case "linear":
                    k[i, j] = x @ y / h.square().sum(-1).mean()
                case "cosine":
                    k[i, j] = torch.cosine_similarity(x, y, dim=0)
    return v**2 * (k + config.noise * torch.eye(n, dtype=h.dtype))


def moved(config: LatentConfig) -> Latent:
    """A latent in float64 away from where it started."""
    latent = Latent(config, HIDDEN).double()
    with torch.no_grad():
        for parameter in latent.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return latent


def heads(latent: Latent, h: Tensor) -> tuple[Tensor, Tensor]:
    network = latent.posterior
    return network.mean(h), network.log_variance(h)


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("scale", ["relative", "absolute"])
@pytest.mark.parametrize("name", KERNELS)
def test_kl_is_that_of_torch_distributions(
    name: str, scale: str, posterior: str, start: bool
) -> None:
    kernel = KernelConfig(name=name, scale=scale, v=0.8, r=1.3, noise=0.05)  # type: ignore[arg-type]
    latent = moved(LatentConfig(kernel=kernel, posterior=posterior, start_at_prior=start))  # type: ignore[arg-type]
    h = torch.randn(2, 6, HIDDEN, dtype=torch.float64)
    found = latent(h, torch.ones(2, 6)).kl()
    for index, states in enumerate(h):
        a = dense_kernel(kernel, states)
        first, second = heads(latent, states)
        mean = states + first if start else first
        variance = a.diagonal().unsqueeze(-1) * second.exp() if start else second.exp()
        if posterior == "diagonal":
            correlation = torch.eye(6, dtype=torch.float64)
        else:
            correlation = a / (a.diagonal()[:, None] * a.diagonal()).sqrt()
        expected = sum(
            kl_divergence(
                MultivariateNormal(mean[:, d], torch.outer(s, s) * correlation),
                MultivariateNormal(states[:, d], a),
            )
            for d, s in enumerate(variance.sqrt().unbind(-1))
        )
        torch.testing.assert_close(found[index], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("start", [True, False])
def test_kl_to_the_normal_prior_is_that_of_torch_distributions(posterior: str, start: bool) -> None:
    latent = moved(LatentConfig(prior="normal", posterior=posterior, start_at_prior=start))  # type: ignore[arg-type]
    h = torch.randn(1, 6, HIDDEN, dtype=torch.float64)
    first, second = heads(latent, h[0])
    if start:
        first = first + h[0] / h[0].square().mean(-1, keepdim=True).sqrt()
    correlation = torch.eye(6, dtype=torch.float64)
    if posterior == "correlated":
        a = dense_kernel(latent.config.kernel, h[0])
        correlation = a / (a.diagonal()[:, None] * a.diagonal()).sqrt()
    standard = MultivariateNormal(torch.zeros(6).double(), torch.eye(6).double())
    expected = sum(
        kl_divergence(MultivariateNormal(first[:, d], torch.outer(s, s) * correlation), standard)
        for d, s in enumerate((0.5 * second).exp().unbind(-1))
    )
    found = latent(h, torch.ones(1, 6)).kl()[0]
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_kl_of_sum_is_that_of_the_summed_process(posterior: str) -> None:
    config = LatentConfig(posterior=posterior, kl="sum")  # type: ignore[arg-type]
    latent = moved(config)
    h = torch.randn(1, 6, HIDDEN, dtype=torch.float64)
    beliefs = latent(h, torch.ones(1, 6))
    a = dense_kernel(config.kernel, h[0])
    first, second = heads(latent, h[0])
    t = (0.5 * second).exp()
    base = a if posterior == "correlated" else torch.diag(a.diagonal())
    expected = kl_divergence(
        MultivariateNormal((h[0] + first).sum(-1), base * (t @ t.T)),
        MultivariateNormal(h[0].sum(-1), HIDDEN * a),
    )
    torch.testing.assert_close(beliefs.kl()[0], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("rbf", gpytorch.kernels.RBFKernel()),
        ("matern12", gpytorch.kernels.MaternKernel(nu=0.5)),
        ("matern32", gpytorch.kernels.MaternKernel(nu=1.5)),
        ("matern52", gpytorch.kernels.MaternKernel(nu=2.5)),
        ("rational_quadratic", gpytorch.kernels.RQKernel()),
    ],
)
def test_kernels_are_those_of_gpytorch(name: str, theirs: gpytorch.kernels.Kernel) -> None:
    theirs = gpytorch.kernels.ScaleKernel(theirs).double()
    theirs.outputscale, theirs.base_kernel.lengthscale = 0.7**2, 1.7
    if name == "rational_quadratic":
        theirs.base_kernel.alpha = 1.0
    h = torch.randn(3, 7, HIDDEN, dtype=torch.float64)
    expected = theirs(h).to_dense() + 0.7**2 * 0.01 * torch.eye(7)
    config = KernelConfig(name=name, v=0.7, r=1.7, noise=0.01, scale="absolute")  # type: ignore[arg-type]
    beliefs = Latent(LatentConfig(kernel=config), HIDDEN)(h, torch.ones(3, 7))
    found = torch.cat([prior.covariance.matrix for prior in beliefs.prior])
    torch.testing.assert_close(found, expected)
    handed_in = Latent(LatentConfig(kernel=config), HIDDEN, kernel=theirs)(h, torch.ones(3, 7))
    found = torch.cat([prior.covariance.matrix for prior in handed_in.prior])
    torch.testing.assert_close(found, expected)


def diagonal_kl(mean: Tensor, variance: Tensor, prior_variance: float) -> Tensor:
    """Σ KL[N(m, s²) ‖ N(0, a)] over independent numbers."""
    ratio = variance / prior_variance
    return 0.5 * (ratio + mean.square() / prior_variance - 1 - ratio.log()).sum()


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_one_position_is_a_gaussian_per_dimension(posterior: str) -> None:
    kernel = KernelConfig(scale="absolute", v=0.6, r=1.0, noise=0.02)
    latent = moved(LatentConfig(kernel=kernel, posterior=posterior))  # type: ignore[arg-type]
    h = torch.randn(1, 1, HIDDEN, dtype=torch.float64)
    delta, log_ratio = heads(latent, h[0])
    expected = diagonal_kl(delta, 0.36 * 1.02 * log_ratio.exp(), 0.36 * 1.02)
    torch.testing.assert_close(latent(h, torch.ones(1, 1)).kl()[0], expected)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_a_tiny_length_scale_leaves_independent_positions(posterior: str) -> None:
    kernel = KernelConfig(scale="absolute", v=0.6, r=1e-4, noise=0.02)
    latent = moved(LatentConfig(kernel=kernel, posterior=posterior))  # type: ignore[arg-type]
    h = torch.randn(1, 9, HIDDEN, dtype=torch.float64)
    with pytest.warns(UserWarning, match="independent prior"):
        found = latent(h, torch.ones(1, 9)).kl()[0]
    delta, log_ratio = heads(latent, h[0])
    expected = diagonal_kl(delta, 0.36 * 1.02 * log_ratio.exp(), 0.36 * 1.02)
    torch.testing.assert_close(found, expected)


def test_a_huge_length_scale_leaves_one_common_function() -> None:
    """A → v² 11ᵀ + σ² I, whose inverse and determinant Sherman and Morrison give."""
    v2, noise, n = 0.36, 0.02 * 0.36, 9
    kernel = KernelConfig(scale="absolute", v=0.6, r=1e7, noise=0.02)
    latent = moved(LatentConfig(kernel=kernel, posterior="diagonal", start_at_prior=False))
    h = torch.randn(1, n, HIDDEN, dtype=torch.float64)
    mean, log_variance = heads(latent, h[0])
    ones = torch.ones(n, n, dtype=torch.float64)
    precision = torch.eye(n) / noise - v2 / (noise * (noise + n * v2)) * ones
    logdet = (n - 1) * torch.tensor(noise).log() + torch.tensor(noise + n * v2).log()
    delta = mean - h[0]
    expected = 0.5 * (
        (precision.diagonal().unsqueeze(-1) * log_variance.exp()).sum()
        + (delta * (precision @ delta)).sum()
        + HIDDEN * (logdet - n)
        - log_variance.sum()
    )
    torch.testing.assert_close(latent(h, torch.ones(1, n)).kl()[0], expected)


@pytest.mark.parametrize("noise", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("r", [0.5, 1.0, 4.0])
def test_the_floor_of_equidistant_positions(r: float, noise: float) -> None:
    """A has the eigenvalue 1 + (n − 1) ρ + noise once, and 1 − ρ + noise at all other places."""
    n = 15
    kernel = KernelConfig(scale="absolute", v=3.0, r=r, noise=noise)
    h = torch.eye(n, dtype=torch.float64).unsqueeze(0)
    rho = math.exp(-1 / r**2)
    others, one = 1 - rho + noise, 1 + (n - 1) * rho + noise
    logdet = (n - 1) * math.log(others) + math.log(one)
    precision = ((n - 1) / others + 1 / one) / n
    expected = torch.tensor([0.5 * n * (logdet + n * math.log(precision))]).double()
    diagonal = Latent(LatentConfig(kernel=kernel, posterior="diagonal"), n)
    torch.testing.assert_close(diagonal(h, torch.ones(1, n)).floor(), expected)
    correlated = Latent(LatentConfig(kernel=kernel), n)
    assert not correlated(h, torch.ones(1, n)).floor().any()


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("n", [1, 2, 50, 512])
def test_no_number_is_lost_over_the_whole_grid(n: int, posterior: str) -> None:
    """Repeated positions and bf16 states, v and r as far as the paper searches them."""
    distinct = torch.randn(1, (n + 1) // 2, HIDDEN)
    h = distinct.repeat(1, 2, 1)[:, :n].bfloat16()
    heads_of_bf16 = h.float()
    for v in (0.01, 1.0, 100.0):
        for r in (1e-4, 0.1, 10.0):
            kernel = KernelConfig(scale="absolute", v=v, r=r)
            latent = moved(LatentConfig(kernel=kernel, posterior=posterior)).float()  # type: ignore[arg-type]
            latent._may_be_white = False
            states = h.clone().requires_grad_()
            found = latent(states, torch.ones(1, n)).kl()
            found.sum().backward()
            assert states.grad is not None
            assert states.grad.isfinite().all()
            first, second = (part.detach().double() for part in heads(latent, heads_of_bf16))
            wide = h[0].double()
            distances = torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist")
            a = v**2 * ((-(distances**2) / (2 * r**2)).exp() + 0.01 * torch.eye(n).double())
            base = a if posterior == "correlated" else torch.diag(a.diagonal())
            t = (0.5 * second[0]).exp().mT
            expected = kl_divergence(
                MultivariateNormal((wide + first[0]).mT, t.unsqueeze(-1) * base * t.unsqueeze(-2)),
                MultivariateNormal(wide.mT, a),
            ).sum()
            assert abs(found[0].double() - expected) < 1e-3 * expected, (v, r)
