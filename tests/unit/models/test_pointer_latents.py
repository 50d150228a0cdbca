"""The latents of the pointer-generator: the modules of every backbone, attention over z alone."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from polyphrase.backbones.pointer_generator import PointerGeneratorConfig
from polyphrase.data.codec import IGNORED
from polyphrase.latent.config import LatentConfig
from polyphrase.models.injection import Injection
from polyphrase.models.latent_seq2seq import LatentSeq2Seq

V, END = 9, 3


def system(**latent: Any) -> LatentSeq2Seq:
    torch.manual_seed(0)
    backbone = PointerGeneratorConfig(
        vocab_size=V, embedding_size=5, encoder_size=4, decoder_size=6, attention_size=7
    )
    settings = {"posterior": "diagonal", "injection": "replace", "size": 3, **latent}
    made = LatentSeq2Seq.from_scratch(backbone, LatentConfig(**settings)).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made.eval()


def batch() -> tuple[dict[str, Tensor], Tensor]:
    ids = torch.tensor([[4, V, 5, V + 1], [6, V, 0, 0]])
    mask = torch.tensor([[1] * 4, [1, 1, 0, 0]])
    labels = torch.tensor([[V, 7, V + 1, END], [V, END, IGNORED, IGNORED]])
    return {"input_ids": ids, "attention_mask": mask}, labels


def test_attention_sees_z_and_the_first_state_comes_from_h() -> None:
    model = system(prior="normal", start_at_prior=False)
    sources, _ = batch()
    memory = model.encode(sources)
    beliefs = model.beliefs(memory)
    assert beliefs is not None
    assert isinstance(model.injection, Injection)
    fused = model.expected(memory)
    layer = model.injection.from_z
    assert layer.bias is not None
    torch.testing.assert_close(fused.states, beliefs.mean @ layer.weight.T + layer.bias)
    for name, tensor in memory.extras.items():
        assert torch.equal(fused.extras[name], tensor)
    # The same z under another h is the same memory.
    again = model.fuse(memory.with_states(memory.states + 1), beliefs.mean)
    assert torch.equal(again.states, fused.states)


def test_kl_of_the_normal_prior_is_summed_over_words_and_dimensions() -> None:
    model = system(prior="normal", start_at_prior=False)
    sources, labels = batch()
    h = model.encode(sources).states
    assert model.latent is not None
    mean, log_variance = model.latent.posterior(h[1:, :2], None)
    q = Normal(mean, (0.5 * log_variance).exp())
    expected = kl_divergence(q, Normal(torch.zeros_like(mean), torch.ones_like(mean))).sum()
    torch.testing.assert_close(model.elbo(sources, labels).kl[1], expected)


@pytest.mark.parametrize("prior", ["mixture", "vamp"])
@torch.no_grad()
def test_kl_without_closed_form_is_not_taken_at_the_mean(prior: str) -> None:
    model = system(prior=prior, components=2)
    sources, labels = batch()
    torch.manual_seed(1)
    at_mean = [model.elbo(sources, labels, sample=False) for _ in range(400)]
    drawn = [model.elbo(sources, labels, sample=True) for _ in range(400)]
    assert all(torch.equal(output.nll, at_mean[0].nll) for output in at_mean)
    validated = torch.stack([output.kl for output in at_mean])
    trained = torch.stack([output.kl for output in drawn])
    error = (validated.var(0) / 400 + trained.var(0) / 400).sqrt()
    assert bool(((validated.mean(0) - trained.mean(0)).abs() < 4 * error).all())
    assert bool((validated.mean(0) > -3 * error).all())


@pytest.mark.parametrize("prior", ["gp", "normal", "mixture", "vamp"])
def test_padding_changes_nothing(prior: str) -> None:
    model = system(prior=prior)
    sources, labels = batch()
    short = {name: tensor[1:, :2] for name, tensor in sources.items()}
    torch.manual_seed(3)
    together = model.elbo(sources, labels, sample=False)
    alone = model.elbo(short, labels[1:, :2], sample=False)
    torch.testing.assert_close(alone.nll[0], together.nll[1], rtol=1e-12, atol=1e-12)
    if prior in ("gp", "normal"):
        torch.testing.assert_close(alone.kl[0], together.kl[1], rtol=1e-12, atol=1e-12)
