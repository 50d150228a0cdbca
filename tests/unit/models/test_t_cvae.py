"""T-CVAE: who sees what, and one z for a whole sentence."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from polyphrase.data.codec import IGNORED
from polyphrase.models.t_cvae import TCVAE, TCVAEConfig, sinusoids
from polyphrase.training.catalogue import SYSTEMS
from polyphrase.training.objective import Objective

V, END = 9, 3
SIZES = {
    **{"vocab_size": V, "size": 16, "layers": 2, "heads": 4, "feed_forward": 24},
    **{"embedding_size": 6, "side_size": 4, "latent_size": 3, "dropout": 0.0},
}


def system(**options: Any) -> TCVAE:
    torch.manual_seed(0)
    made = TCVAE(TCVAEConfig(**{**SIZES, **options})).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made


def batch() -> tuple[dict[str, Tensor], Tensor]:
    ids = torch.tensor([[4, 5, 6], [7, 8, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    labels = torch.tensor([[5, 8, 4, END], [6, END, IGNORED, IGNORED]])
    return {"input_ids": ids, "attention_mask": mask}, labels


def test_kl_is_that_of_full_gaussians() -> None:
    model = system()
    sources, labels = batch()
    output = model.elbo(sources, labels, sample=False)
    p, q = model.prior_of(model.encode(sources)), model.posterior_of(sources, labels)
    for row in range(2):
        expected = kl_divergence(
            MultivariateNormal(q.mean[row], q.stddev[row].square().diag()),
            MultivariateNormal(p.mean[row], p.stddev[row].square().diag()),
        )
        torch.testing.assert_close(output.kl[row], expected)


def test_kl_is_the_mean_of_log_ratios() -> None:
    model = system()
    sources, labels = batch()
    p, q = model.prior_of(model.encode(sources)), model.posterior_of(sources, labels)
    torch.manual_seed(2)
    z = q.sample(torch.Size([200_000]))
    ratio = Independent(q, 1).log_prob(z) - Independent(p, 1).log_prob(z)
    expected = model.elbo(sources, labels, sample=False).kl
    torch.testing.assert_close(ratio.mean(0), expected, rtol=0.02, atol=0.01)


def test_equal_networks_have_no_kl() -> None:
    model = system()
    sources, labels = batch()
    with torch.no_grad():
        model.posterior.weight.zero_()
        model.prior.get_submodule("2").get_parameter("weight").zero_()
    assert bool((model.elbo(sources, labels).kl == 0).all())
    diagnose = model.elbo(sources, labels).diagnose
    assert diagnose is not None
    assert diagnose()["active"] == 0


def test_source_and_prior_never_see_the_target() -> None:
    model = system()
    sources, labels = batch()
    memory = model.encode(sources)
    assert set(memory.extras) == {"layers"}
    prior = model.prior_of(memory)
    other = torch.where(labels == IGNORED, labels, 8)
    first, second = model.posterior_of(sources, labels), model.posterior_of(sources, other)
    assert not torch.equal(first.mean, second.mean)
    torch.testing.assert_close(model.prior_of(model.encode(sources)).mean, prior.mean)


def test_a_word_never_sees_those_after_it() -> None:
    model = system()
    sources, labels = batch()
    memory = model.expected(model.encode(sources))
    whole = [model.nll(memory, labels[:, : count + 1])[0] for count in range(4)]
    labels[0, 2:] = 7
    again = [model.nll(memory, labels[:, : count + 1])[0] for count in range(2)]
    torch.testing.assert_close(torch.stack(whole[:2]), torch.stack(again))


@torch.no_grad()
def test_step_by_step_is_teacher_forcing_under_one_z() -> None:
    model = system()
    sources, labels = batch()
    memory = model.encode(sources)
    z = torch.randn(2, 3).double()
    memory = model.under(memory, z)
    executor = model.executor(memory)
    tokens, total = torch.full((2,), model.start_token), torch.zeros(2).double()
    for position in range(labels.shape[1]):
        features = executor.step(tokens, None if position == 0 else torch.arange(2))
        torch.testing.assert_close(features[:, -3:], z)  # the same z at every step
        tokens = labels[:, position].clamp(min=0)
        said = executor.logits(features).log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        total = total - torch.where(labels[:, position] == IGNORED, 0.0, said)
    torch.testing.assert_close(total, model.nll(memory, labels))


@torch.no_grad()
def test_rows_branch_and_leave_by_parents_alone() -> None:
    model = system()
    sources, _ = batch()
    memory = model.expected(model.encode(sources))
    executor = model.executor(memory)
    start = model.start_token
    executor.step(torch.tensor([start, start]), None)
    executor.step(torch.tensor([4, 5, 6]), torch.tensor([0, 0, 1]))
    branched = executor.logits(executor.step(torch.tensor([5, 6]), torch.tensor([2, 1])))
    for row, (source, words) in enumerate([(1, [start, 6, 5]), (0, [start, 5, 6])]):
        alone = model.executor(memory.select(torch.tensor([source])))
        for word in words:
            parents = None if word == start else torch.tensor([0])
            features = alone.step(torch.tensor([word]), parents)
        torch.testing.assert_close(branched[row], alone.logits(features)[0])


@pytest.mark.parametrize("more", [0, 5])
def test_padding_and_buffer_length_change_nothing(more: int) -> None:
    """The published code averages the NLL over the whole buffer; here only words count."""
    model = system()
    sources, labels = batch()
    short = {name: tensor[1:, :2] for name, tensor in sources.items()}
    alone = model.elbo(short, labels[1:, :2], sample=False)
    pad = torch.nn.functional.pad
    long = {name: pad(tensor, (0, more)) for name, tensor in sources.items()}
    together = model.elbo(long, pad(labels, (0, more), value=IGNORED), sample=False)
    torch.testing.assert_close(alone.nll[0], together.nll[1])
    torch.testing.assert_close(alone.kl[0], together.kl[1])


class Noise:
    """The same noise for every source, spread by a factor."""

    numbers = (0, 1)

    def __init__(self, spread: float) -> None:
        self.spread = spread

    def normal(self, mask: Tensor, size: int) -> Tensor:
        assert mask.shape == (2, 1)
        return torch.tensor([1.0, -2.0])[:, None, None, None].expand(2, 2, 1, size)

    def uniform(self) -> Tensor:
        raise AssertionError("z needs no uniform numbers")


def test_spread_multiplies_the_priors_variance() -> None:
    model = system()
    memory = model.encode(batch()[0])
    prior: Normal = model.prior_of(memory)
    z = model.sampled(memory, Noise(4.0)).extras["z"].unflatten(0, (2, 2))  # [B, S, D]
    torch.testing.assert_close(z[:, 0], prior.mean + 2 * prior.stddev)
    torch.testing.assert_close(z[:, 1], prior.mean - 4 * prior.stddev)
    torch.testing.assert_close(model.expected(memory).extras["z"], prior.mean)


def test_one_stack_reads_and_writes() -> None:
    model = system()
    sources, labels = batch()
    model.elbo(sources, labels, sample=True).loss.backward()
    assert all(weight.grad is not None for weight in model.parameters())
    assert len(model.blocks) == 2
    # The pass for the posterior shares all but its normalisation.
    norms = sum(w.numel() for n, w in model.named_parameters() if ".norms." in n)
    assert norms == 2 * 4 * 2 * 16


def test_annealing_reaches_one_where_it_is_published() -> None:
    objective = Objective(**SYSTEMS["t-cvae"]["objective"])
    assert (objective.weight(0), objective.weight(20_000)) == (0.0, 1.0)
    assert objective.weight(10_000) == pytest.approx(0.5)
    assert objective.weight(400_000) == 1.0


def test_positions_turn_at_their_wavelengths() -> None:
    table = sinusoids(torch.arange(3), 4)
    torch.testing.assert_close(table[0], torch.tensor([0.0, 1.0, 0.0, 1.0]))
    expected = torch.tensor([2.0, 2.0, 0.02, 0.02])
    expected = torch.where(torch.arange(4) % 2 == 0, expected.sin(), expected.cos())
    torch.testing.assert_close(table[2], expected)


@pytest.mark.parametrize(
    ("options", "published"),
    [
        ({"size": 256, "layers": 2, "feed_forward": 512}, 12_824_806),
        ({}, 30_758_886),
    ],
)
def test_size_is_the_published_less_seven_segments(options: dict[str, int], published: int) -> None:
    """A story has nine segments where a pair of texts has two."""
    with torch.device("meta"):
        model = TCVAE(TCVAEConfig(**options))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == published - 7 * 150
