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
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name

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
