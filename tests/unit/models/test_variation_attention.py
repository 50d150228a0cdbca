"""Variation Attention against enumeration, in float64."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from polyphrase.backbones.memory import Memory
from polyphrase.data.codec import IGNORED
from polyphrase.errors import BadInput
from polyphrase.models.variation_attention import (
    DrawnExecutor,
    VariationAttention,
    VariationAttentionConfig,
    Words,
    alignment_kl,
)

V, END = 9, 3
SIZES = {
    **{"vocab_size": V, "embedding_size": 5, "encoder_size": 4, "decoder_size": 6},
    **{"posterior_size": 4, "attention_size": 5, "layers": 2, "dropout": 0.0},
}


def system(**options: Any) -> VariationAttention:
    torch.manual_seed(0)
    made = VariationAttention(VariationAttentionConfig(**{**SIZES, **options})).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return made


def batch() -> tuple[dict[str, Tensor], Tensor]:
    ids = torch.tensor([[4, 5, 6], [7, 8, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    labels = torch.tensor([[5, 8, 4, END], [6, END, IGNORED, IGNORED]])
    return {"input_ids": ids, "attention_mask": mask}, labels


def parts(model: VariationAttention) -> tuple[Memory, Words, Tensor]:
    """What the estimators work on: memory, words, and log q."""
    sources, labels = batch()
    memory = model.encode(sources)
    words = model.read(memory, labels)
    real = labels != IGNORED
    posterior = model.posterior(
        model.source_words(sources["input_ids"]),
        model.target_words(labels.clamp(min=0)),
        memory.mask,
        real,
    )[real]
    return memory, words, posterior


def fixed_draws(monkeypatch: pytest.MonkeyPatch, positions: tuple[int, ...]) -> None:
    """Let every word draw these positions."""

    def multinomial(p: Tensor, count: int, replacement: bool = False) -> Tensor:
        return torch.tensor(positions[:count]).expand(len(p), -1)

    monkeypatch.setattr(torch, "multinomial", multinomial)


def gradients(model: VariationAttention, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward(retain_graph=True)
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def test_bound_is_below_the_marginal() -> None:
    sources, labels = batch()
    exact = system(estimator="exact").elbo(sources, labels)
    enum = system().elbo(sources, labels, sample=False)
    assert bool((enum.kl > 0).all())
    assert bool((enum.nll + enum.kl > exact.nll).all())
    assert bool((exact.kl == 0).all())


def test_bound_is_the_marginal_at_the_true_posterior() -> None:
    model = system()
    memory, words, _ = parts(model)
    joint = words.prior + model.log_likelihoods(memory, words)
    nll, kl = model._enum(memory, words, joint.log_softmax(-1))
    torch.testing.assert_close(nll + kl, -joint.logsumexp(-1))


def test_marginal_by_hand() -> None:
    """A sentence's marginal is a sum over all alignments of all its words."""
    model = system(estimator="exact")
    memory, words, _ = parts(model)
    likelihood = model.log_likelihoods(memory, words)
    first = words.rows == 0
    total = torch.zeros(())
    for alignment in itertools.product(range(3), repeat=int(first.sum())):
        at = torch.tensor(alignment)[:, None]
        p = words.prior[first].gather(1, at) + likelihood[first].gather(1, at)
        total = total + p.sum().exp()
    sources, labels = batch()
    torch.testing.assert_close(model.elbo(sources, labels).nll[0], -total.log().double())


@pytest.mark.parametrize("estimator", ["enum", "exact", "sample", "gumbel", "wsram"])
def test_one_position_leaves_nothing_latent(estimator: str) -> None:
    sources, labels = batch()
    one = {name: tensor[:, :1] for name, tensor in sources.items()}
    model = system(estimator=estimator)
    reference = system(estimator="exact").elbo(one, labels)
    output = model.elbo(one, labels, sample=True)
    torch.testing.assert_close(output.nll, reference.nll)
    torch.testing.assert_close(output.kl, torch.zeros(2).double())


@pytest.mark.parametrize("baseline", ["soft", "none"])
def test_score_function_has_the_gradient_of_the_bound(
    baseline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = system()
    memory, words, posterior = parts(model)
    if baseline == "none":  # a reward shifted by any constant has the same mean gradient
        words = Words(words.labels, words.queries, words.soft * 0 + 3, words.prior, words.rows)
    nll, kl = model._enum(memory, words, posterior)
    expected = gradients(model, (nll + kl).sum())
    mean = torch.zeros(()).double()
    surrogate = torch.zeros(()).double()
    q = posterior.exp().detach()
    for position in range(3):
        real = memory.mask[words.rows, position]
        fixed_draws(monkeypatch, (position,))
        sampled, kl = model._sample(memory, words, posterior.clamp(min=-50))
        surrogate = surrogate + (q[:, position] * (sampled + kl))[real].sum()
        mean = mean + (q[:, position] * sampled)[real].sum().detach()
    torch.testing.assert_close(mean, nll.sum().detach())
    for name, gradient in gradients(model, surrogate).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-10)


def test_bound_tightens_with_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, labels = batch()
    exact = system(estimator="exact").elbo(sources, labels).nll.sum()
    bounds = []
    for count in (1, 2, 3):
        model = system(estimator="wsram", samples=count)
        memory, words, posterior = parts(model)
        bound = torch.zeros(()).double()
        for draws in itertools.product(range(3), repeat=count):
            fixed_draws(monkeypatch, draws)
            real = memory.mask[words.rows][:, list(draws)].all(-1)
            p = posterior[:, list(draws)].sum(-1).exp()
            value, _ = model._wsram(memory, words, posterior.clamp(min=-50))
            bound = bound + (p * value)[real].sum()
        bounds.append(float(bound.detach()))
    enum = system().elbo(sources, labels, sample=False)
    assert bounds[0] == pytest.approx(float((enum.nll + enum.kl).detach().sum()))
    assert bounds[0] > bounds[1] > bounds[2] > float(exact.detach())


def test_cold_relaxation_is_one_position() -> None:
    model = system(relaxation=1e-6)
    memory, words, posterior = parts(model)
    torch.manual_seed(1)
    nll, _ = model._gumbel(memory, words, posterior)
    near = (model.log_likelihoods(memory, words) + nll[:, None]).abs()
    near = near.masked_fill(~memory.mask[words.rows], torch.inf)
    assert float(near.amin(-1).max().detach()) < 1e-9


def test_kl_is_that_of_categoricals() -> None:
    torch.manual_seed(0)
    q, p = torch.randn(2, 5, 4).double().log_softmax(-1)
    expected = kl_divergence(Categorical(logits=q), Categorical(logits=p))
    torch.testing.assert_close(alignment_kl(q, p), expected)
    nowhere = torch.full((5, 2), -torch.inf).double()
    padded = alignment_kl(torch.cat([q, nowhere], 1), torch.cat([p, nowhere], 1))
    torch.testing.assert_close(padded, expected)


@pytest.mark.parametrize("estimator", ["enum", "exact"])
def test_padding_changes_nothing(estimator: str) -> None:
    sources, labels = batch()
    short = {name: tensor[1:, :2] for name, tensor in sources.items()}
    model = system(estimator=estimator)
    together = model.elbo(sources, labels, sample=False)
    alone = model.elbo(short, labels[1:, :2], sample=False)
    torch.testing.assert_close(alone.nll[0], together.nll[1])
    torch.testing.assert_close(alone.kl[0], together.kl[1])


@torch.no_grad()
def test_decoder_says_the_exact_marginal() -> None:
    model = system(estimator="exact")
    sources, labels = batch()
    memory = model.expected(model.encode(sources))
    executor = model.executor(memory)
    tokens, total = torch.full((2,), model.start_token), torch.zeros(2).double()
    for position in range(labels.shape[1]):
        features = executor.step(tokens, None if position == 0 else torch.arange(2))
        log_p = executor.logits(features)
        torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2).double())
        tokens = labels[:, position].clamp(min=0)
        said = log_p.gather(1, tokens[:, None])[:, 0]
        total = total - torch.where(labels[:, position] == IGNORED, 0.0, said)
    torch.testing.assert_close(total, model.elbo(sources, labels).nll)


class Numbers:
    """Given numbers in place of a sample's own."""

    def __init__(self, uniform: Tensor, spread: float = 1.0) -> None:
        self.numbers = range(len(uniform) // 2)
        self.spread = spread
        self._uniform = uniform

    def normal(self, mask: Tensor, size: int) -> Tensor:
        raise AssertionError("alignments need no Gaussian noise")

    def uniform(self) -> Tensor:
        return self._uniform


@torch.no_grad()
def test_drawn_alignments_follow_the_prior_and_no_state_depends_on_them() -> None:
    model = system()
    sources, _ = batch()
    memory = model.encode(sources)
    grid = 4000
    uniform = (torch.arange(grid) + 0.5) / grid
    numbers = Numbers(uniform.repeat(2)[:, None].expand(-1, 2))
    executor = model.executor(model.sampled(memory, numbers))
    assert isinstance(executor, DrawnExecutor)
    tokens = torch.full((2 * grid,), model.start_token)
    features = executor.step(tokens, None)
    keys = model.attention.keys(memory.states)
    state, prior = model.advance(memory, keys, model.first(memory), model.target_words(tokens[:2]))
    for row in range(2):
        of_row = features[row * grid : (row + 1) * grid]
        for position in range(3):
            said = model.said_from(state.hidden[-1][row], memory.states[row, position])
            share = (of_row - said).abs().amax(-1).lt(1e-12).double().mean()
            expected = prior[row, position].exp()
            assert float(share) == pytest.approx(float(expected), abs=1 / grid)
    # All samples of a source are in one state.
    query = executor.query.unflatten(0, (2, grid))
    torch.testing.assert_close(query, query[:, :1].expand_as(query))


@torch.no_grad()
def test_little_spread_takes_the_likeliest_alignment() -> None:
    model = system()
    sources, _ = batch()
    memory = model.encode(sources)
    tokens = torch.full((2,), model.start_token)
    uniform = torch.tensor([[0.001], [0.999]])
    drawn = model.executor(model.sampled(memory, Numbers(uniform, spread=1e-4)))
    features = drawn.step(tokens, None)
    keys = model.attention.keys(memory.states)
    state, prior = model.advance(memory, keys, model.first(memory), model.target_words(tokens))
    best = memory.states[torch.arange(2), prior.argmax(-1)]
    torch.testing.assert_close(features, model.said_from(state.hidden[-1], best))


def test_gradients_reach_everything() -> None:
    for estimator in ("enum", "sample", "gumbel", "wsram"):
        torch.manual_seed(0)
        model = system(estimator=estimator)
        model.elbo(*batch(), sample=True).loss.backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, (estimator, name)
            assert bool(parameter.grad.isfinite().all()), (estimator, name)


def test_unknown_estimator_is_one_sentence() -> None:
    with pytest.raises(BadInput, match="choose one of enum, exact, sample, gumbel, wsram"):
        system(estimator="reinforce")


def test_size_is_the_published() -> None:
    with torch.device("meta"):
        model = VariationAttention(VariationAttentionConfig())
    assert sum(parameter.numel() for parameter in model.parameters()) == 82_518_816
    assert sum(parameter.numel() for parameter in model.posterior.parameters()) == 22_052_864
