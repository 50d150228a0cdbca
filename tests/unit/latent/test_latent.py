import copy
import itertools
import warnings

import pytest
import torch
from torch import Tensor

from polyphrase.errors import BadInput
from polyphrase.latent import KernelConfig, Latent, LatentConfig
from polyphrase.latent.beliefs import LONG
from polyphrase.settings import from_mapping, to_mapping

HIDDEN = 6

COMBINATIONS = [
    pytest.param(
        LatentConfig(prior=prior, posterior=posterior, kl=kl, size=size, start_at_prior=start),  # type: ignore[arg-type]
        id=f"{prior}-{posterior}-{kl}-{size or 'same'}-{'prior' if start else 'paper'}",
    )
    for prior, posterior, kl, size, start in itertools.product(
        ("gp", "normal", "mixture", "vamp"),
        ("correlated", "diagonal"),
        ("full", "sum", "none"),
        (None, 4),
        (True, False),
    )
    if kl != "sum" or prior in ("gp", "normal")
]
POSTERIORS = ("correlated", "diagonal")


def trained(config: LatentConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> Latent:
    """A latent whose parameters are no longer where they started."""
    torch.manual_seed(seed)
    latent = Latent(config, HIDDEN).to(dtype)
    with torch.no_grad():
        for parameter in latent.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return latent


def batch(*masks: str, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Random states and a mask written as one string per sentence, `x` for a real position."""
    mask = torch.tensor([[letter == "x" for letter in text] for text in masks])
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*mask.shape, HIDDEN, dtype=torch.float64, generator=generator), mask


def everything(latent: Latent, h: Tensor, mask: Tensor, noise: Tensor) -> dict[str, Tensor]:
    h = h.clone().requires_grad_()
    beliefs = latent(h, mask)
    z = beliefs.sample(noise, spread=2.0)
    kl = beliefs.kl(z)
    (kl.sum() + z.sin().sum()).backward()
    assert h.grad is not None
    return {"mean": beliefs.mean, "z": z, "kl": kl, "gradient": h.grad}


@pytest.mark.parametrize("config", COMBINATIONS)
def test_every_combination_trains_and_travels(config: LatentConfig) -> None:
    latent = trained(config)
    h, mask = batch("xxxxx", "xxx..", "x....")
    noise = torch.randn(3, 5, latent.dimension, dtype=torch.float64)
    found = everything(latent, h, mask, noise)
    assert found["z"].shape == (3, 5, latent.dimension)
    assert found["kl"].shape == (3,)
    assert all(value.isfinite().all() for value in found.values())
    for name, parameter in latent.named_parameters():
        if config.kl == "none" and name.startswith("prior."):
            continue  # nothing asks the prior then
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name

    config = from_mapping(LatentConfig, to_mapping(latent.config))
    twin = Latent(config, HIDDEN).double()
    twin.load_state_dict(latent.state_dict())
    for name, value in everything(twin, h, mask, noise).items():
        assert torch.equal(value, found[name]), name


@pytest.mark.parametrize(
    "config",
    [
        *COMBINATIONS,
        *(
            LatentConfig(posterior=posterior, kernel=KernelConfig(name=name, learnable=True))  # type: ignore[arg-type]
            for posterior in POSTERIORS
            for name in ("matern12", "matern52", "rational_quadratic", "linear", "cosine")
        ),
    ],
)
def test_padding_and_company_change_no_bit(config: LatentConfig) -> None:
    latent = trained(config)
    h, mask = batch("xxxxxxx", ".x.xxx.", "xxxx...", "...xxxx", "x......", "xxxxxxx", "xx.xx.x")
    noise = torch.randn(*mask.shape, latent.dimension, dtype=torch.float64)
    together = everything(latent, h, mask, noise)
    for index, real in enumerate(mask):
        alone = everything(
            latent,
            h[index, real].unsqueeze(0),
            torch.ones(1, int(real.sum())),
            noise[index, real].unsqueeze(0),
        )
        assert torch.equal(together["kl"][index], alone["kl"][0])
        for name in ("mean", "z", "gradient"):
            assert torch.equal(together[name][index, real], alone[name][0]), name
            assert not together[name][index, ~real].any(), name


@pytest.mark.parametrize("config", COMBINATIONS)
def test_single_precision_is_close_to_double(config: LatentConfig) -> None:
    latent = trained(config)
    h, mask = batch("xxxxxxx", ".x.xxx.", "x......", "xxxxxxx")
    noise = torch.randn(*mask.shape, latent.dimension, dtype=torch.float64)
    wide = latent(h, mask)
    z = wide.sample(noise)
    narrow = copy.deepcopy(latent).float()
    found = narrow(h.float(), mask)
    assert found.kl(z.float()).dtype == found.sample(noise.float()).dtype == torch.float32
    torch.testing.assert_close(found.kl(z.float()).double(), wide.kl(z), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.sample(noise.float()).double(), z, rtol=1e-4, atol=1e-4)
    padded = found.kl(z.float())
    for index, real in enumerate(mask):
        beliefs = narrow(h[index, real].float().unsqueeze(0), torch.ones(1, int(real.sum())))
        alone = beliefs.kl(z[index, real].float().unsqueeze(0))
        torch.testing.assert_close(padded[index], alone[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_the_mathematics_ignores_autocast(posterior: str) -> None:
    """Autocast may touch the two linear heads and nothing after them, so here they say nothing."""
    config = LatentConfig(posterior=posterior, kernel=KernelConfig(learnable=True))  # type: ignore[arg-type]
    latent = Latent(config, HIDDEN)
    h, mask = batch("xxxxxxx", ".x.xxx.")
    noise = torch.randn(2, 7, HIDDEN)
    results = []
    for enabled in (False, True):
        states = h.float().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            beliefs = latent(states, mask)
            z, kl, floor = beliefs.sample(noise), beliefs.kl(), beliefs.floor()
        (kl.sum() + z.sum()).backward()
        results.append((z, kl, floor, states.grad))
    for plain, autocast in zip(*results, strict=True):
        assert plain.dtype == autocast.dtype
        assert torch.equal(plain, autocast)


@pytest.mark.parametrize("config", COMBINATIONS)
def test_bf16_states_and_modules(config: LatentConfig) -> None:
    h, mask = batch("xxxxxxx", ".x.xxx.")
    for latent in (trained(config, dtype=torch.float32), trained(config, dtype=torch.bfloat16)):
        states = h.bfloat16().requires_grad_()
        beliefs = latent(states, mask)
        z = beliefs.sample(torch.randn(2, 7, latent.dimension).bfloat16())
        kl = beliefs.kl(z)
        assert z.dtype == beliefs.mean.dtype == torch.bfloat16
        assert kl.dtype == torch.float32
        (kl.sum() + z.sum()).backward()
        assert states.grad is not None
        assert states.grad.isfinite().all()
        assert kl.isfinite().all()


def test_an_untrained_correlated_posterior_is_the_prior() -> None:
    h, mask = batch("xxxxxxx", ".x.xxx.")
    beliefs = Latent(LatentConfig(), HIDDEN).double()(h, mask)
    assert torch.equal(beliefs.mean, h * mask.unsqueeze(-1))
    torch.testing.assert_close(beliefs.kl(), torch.zeros(2).double(), rtol=0, atol=1e-12)
    diagonal = Latent(LatentConfig(posterior="diagonal"), HIDDEN).double()(h, mask)
    assert torch.equal(diagonal.mean, beliefs.mean)
    assert (diagonal.kl() > 0).all()


@pytest.mark.parametrize("prior", ["normal", "mixture", "vamp"])
def test_an_untrained_posterior_lets_the_source_through(prior: str) -> None:
    """Under a prior blind to h: h itself, with as much signal as noise at each position."""
    h, mask = batch("xxxxxxx")
    beliefs = Latent(LatentConfig(prior=prior), HIDDEN).double()(0.1 * h, mask)  # type: ignore[arg-type]
    rms = h.square().mean(-1, keepdim=True).sqrt()
    torch.testing.assert_close(beliefs.mean, h / rms, rtol=1e-6, atol=1e-6)
    (posterior,) = beliefs.posterior
    torch.testing.assert_close(posterior.base.variance, torch.ones(1, 7).double())
    assert not posterior.log_ratio.any()


def test_vamp_components_differ_and_follow_the_posterior() -> None:
    latent = Latent(LatentConfig(prior="vamp"), HIDDEN).double()
    h, mask = batch("xxx")
    (prior,) = latent(h, mask).prior
    assert torch.pdist(prior.mean).min() > 0.1
    with torch.no_grad():
        latent.posterior.log_variance.bias.fill_(0.7)
    (prior,) = latent(h, mask).prior
    assert torch.equal(prior.log_variance, torch.full((5, HIDDEN), 0.7, dtype=torch.float64))


def test_kernel_gradients_can_be_stopped() -> None:
    h, mask = batch("xxxxxxx", ".x.xxx.")
    gradients = []
    for open_ in (True, False):
        kernel = KernelConfig(learnable=True)
        config = LatentConfig(posterior="diagonal", kernel=kernel, kernel_gradient=open_)
        latent = Latent(config, HIDDEN).double()
        states = h.clone().requires_grad_()
        latent(states, mask).kl().sum().backward()
        assert states.grad is not None
        assert isinstance(latent.kernel, torch.nn.Module)
        assert all(p.grad is not None and p.grad.any() for p in latent.kernel.parameters())
        gradients.append(states.grad)
    assert gradients[0].any()
    assert not gradients[1].any()


def test_a_white_gaussian_process_is_told_once() -> None:
    kernel = KernelConfig(scale="absolute", r=1e-4)
    h, mask = batch("xxx", "xx.")
    latent = Latent(LatentConfig(kernel=kernel), HIDDEN).double()
    latent(h[:, :1], mask[:, :1])  # a single position says nothing of correlation
    with pytest.warns(UserWarning, match=r"independent prior N\(h, v² I\); raise"):
        latent(h, mask)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        latent(h, mask)
        Latent(LatentConfig(kernel=KernelConfig(scale="absolute", r=2.0)), HIDDEN)(h, mask)
        Latent(LatentConfig(kernel=KernelConfig(r=0.5)), HIDDEN)(h, mask)
    with pytest.warns(UserWarning, match="independent prior"):
        Latent(LatentConfig(kernel=KernelConfig(r=1e-4)), HIDDEN)(h, mask)


def test_a_long_sentence_takes_the_other_way_to_the_same_numbers() -> None:
    latent = trained(LatentConfig())
    h = torch.randn(1, LONG, HIDDEN, dtype=torch.float64)
    noise = torch.randn_like(h)
    long = everything(latent, h, torch.ones(1, LONG), noise)
    assert all(value.isfinite().all() for value in long.values())


def test_a_mask_of_pads_alone_is_refused() -> None:
    with pytest.raises(BadInput, match="no position"):
        Latent(LatentConfig(), HIDDEN)(torch.randn(1, 3, HIDDEN), torch.zeros(1, 3))
