"""Multi-Selectors: which expert learns, what it selects, and what a sample is."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from polyphrase.data.codec import IGNORED
from polyphrase.data.focus import FocusCodec, focus
from polyphrase.data.vocabulary import Vocabulary
from polyphrase.models.multi_selectors import (
    MultiSelectors,
    MultiSelectorsConfig,
    selection_loss,
)

V, END = 9, 3
SIZES = {
    **{"vocab_size": V, "embedding_size": 5, "encoder_size": 4, "decoder_size": 6},
    **{"attention_size": 5, "focus_size": 3, "selector_size": 4, "expert_size": 5},
}


def system(**options: Any) -> MultiSelectors:
    torch.manual_seed(0)
    made = MultiSelectors(MultiSelectorsConfig(**{**SIZES, **options})).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return made


def batch() -> tuple[dict[str, Tensor], Tensor]:
    ids = torch.tensor([[4, 5, 6, V], [7, 8, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    marks = torch.tensor([[1, 0, 0, 1], [0, 1, 0, 0]])
    labels = torch.tensor([[5, V, 4, END], [6, END, IGNORED, IGNORED]])
    return {"input_ids": ids, "attention_mask": mask, "focus": marks}, labels


def scores_of(model: MultiSelectors, sources: dict[str, Tensor]) -> Tensor:
    words = model.generator.embed(sources["input_ids"])
    scores: Tensor = model.selector(words, sources["attention_mask"].bool())[1]
    return scores


class Numbers:
    """Sample numbers; nothing is drawn."""

    spread = 1.0

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def normal(self, mask: Tensor, size: int) -> Tensor:
        raise AssertionError("experts need no noise")

    def uniform(self) -> Tensor:
        raise AssertionError("experts need no numbers")


def test_focus_of_a_hand_made_pair() -> None:
    source = ["The", "running", "cats", "￭,", "maybe", "￭-￭", "Runs", "￭."]
    target = ["A", "cat", "ran", "￭,", "it", "runs", "￭."]
    kept = [False, True, True, False, False, False, True, False]
    assert focus(source, target) == kept


def test_codec_marks_what_the_target_keeps_up_to_where_the_source_is_cut() -> None:
    codec = FocusCodec(Vocabulary.build(["a b c d"]), max_length=3)
    pairs = codec.pairs(["a b c d", "x"], ["d c a", "a x"])
    assert pairs["focus"].tolist() == [[1, 0, 1], [1, 0, 0]]
    assert pairs["focus"].shape == pairs["input_ids"].shape


def test_one_expert_is_a_plain_classifier() -> None:
    model = system(experts=1).eval()
    sources, labels = batch()
    output = model.elbo(sources, labels)
    mask = sources["attention_mask"].bool()
    scores = scores_of(model, sources)[:, 0]
    plain = F.binary_cross_entropy_with_logits(scores[mask], sources["focus"][mask].double())
    assert output.penalty is not None
    tokens = (labels != IGNORED).sum()
    # The penalty per target token is the mean cross-entropy per source word.
    torch.testing.assert_close(output.penalty.sum() / tokens, plain)


def test_the_best_expert_is_never_worse_than_a_fixed_one() -> None:
    model = system(experts=4).eval()
    sources, labels = batch()
    output = model.elbo(sources, labels)
    mask = sources["attention_mask"].bool()
    tokens = (labels != IGNORED).sum()
    scale = tokens / mask.sum()
    scores = scores_of(model, sources)
    losses = selection_loss(scores, sources["focus"][:, None], mask[:, None])
    assert output.penalty is not None
    torch.testing.assert_close(output.penalty, losses.amin(-1) * scale)


def test_only_the_best_expert_learns() -> None:
    model = system(experts=4)
    sources, labels = batch()
    one = {name: tensor[:1] for name, tensor in sources.items()}
    model.elbo(one, labels[:1]).loss.backward()
    best = int(model.best_experts(one))
    gradient = model.selector.experts.weight.grad
    assert gradient is not None
    assert [bool(row.any()) for row in gradient] == [expert == best for expert in range(4)]


def test_e_step_builds_no_graph_and_drops_nothing() -> None:
    model = system(experts=4, selector_dropout=0.9)
    sources, _ = batch()
    model.train()
    choices = {tuple(model.best_experts(sources).tolist()) for _ in range(20)}
    assert len(choices) == 1
    assert model.training
    assert not model.best_experts(sources).requires_grad


def test_padding_is_out_of_the_choice() -> None:
    model = system(experts=4)
    sources, _ = batch()
    short = {name: tensor[1:, :2] for name, tensor in sources.items()}
    assert model.best_experts(sources)[1] == model.best_experts(short)[0]
    sources["focus"][1, 2:] = 1
    assert model.best_experts(sources)[1] == model.best_experts(short)[0]


def test_padding_changes_nothing() -> None:
    model = system(experts=4).eval()
    sources, labels = batch()
    plain = model.elbo(sources, labels)
    longer = {name: F.pad(tensor, (0, 3)) for name, tensor in sources.items()}
    padded = model.elbo(longer, F.pad(labels, (0, 2), value=IGNORED))
    assert plain.penalty is not None
    assert padded.penalty is not None
    torch.testing.assert_close(padded.nll, plain.nll)
    torch.testing.assert_close(padded.penalty, plain.penalty)
    short = {name: tensor[1:, :2] for name, tensor in sources.items()}
    torch.testing.assert_close(model.elbo(short, labels[1:, :2]).nll[0], plain.nll[1])


def test_permuted_experts_permute_the_samples() -> None:
    model = system(experts=3).eval()
    sources, _ = batch()
    before = model.sampled(model.encode(sources), Numbers(0, 1, 2)).states
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        model.selector.experts.weight.copy_(model.selector.experts.weight[order])
    after = model.sampled(model.encode(sources), Numbers(0, 1, 2)).states
    width = before.unflatten(0, (2, 3))
    torch.testing.assert_close(after.unflatten(0, (2, 3)), width[:, order])


def test_sample_k_is_expert_k_mod_the_number_of_experts() -> None:
    model = system(experts=3).eval()
    sources, _ = batch()
    memory = model.encode(sources)
    states = model.sampled(memory, Numbers(1, 4, 5)).states.unflatten(0, (2, 3))
    torch.testing.assert_close(states[:, 0], states[:, 1])
    everyone = model.expected(memory).states.unflatten(0, (2, 3))
    torch.testing.assert_close(states[:, 2], everyone[:, 2])


def test_focus_shrinks_as_the_threshold_grows() -> None:
    sources, _ = batch()
    last: Tensor | None = None
    for threshold in (0.0, 0.15, 0.5, 0.9, 1.0):
        chosen = system(threshold=threshold).eval().encode(sources).extras["focus"]
        assert not bool((chosen & ~sources["attention_mask"].bool()[:, None]).any())
        if last is not None:
            assert bool((chosen <= last).all())
        last = chosen
    assert last is not None
    assert not bool(last.any())


def test_generator_learns_from_the_true_focus_alone() -> None:
    model = system(experts=2).eval()
    sources, labels = batch()
    expected = model.generator.nll(model.generator.encode(sources), labels)
    torch.testing.assert_close(model.elbo(sources, labels).nll, expected)
    other = {**sources, "focus": 1 - sources["focus"]}
    assert not torch.equal(model.elbo(other, labels).nll, expected)


@pytest.mark.parametrize("experts", [1, 3])
def test_selector_has_the_published_size(experts: int) -> None:
    with torch.device("meta"):
        model = MultiSelectors(MultiSelectorsConfig(experts=experts))
    count = sum(parameter.numel() for parameter in model.selector.parameters())
    assert count == 1_799_557 - 300 * (3 - experts)
