import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration
from transformers.activations import NewGELUActivation

from polyphrase.backbones.huggingface import HuggingFaceBackbone
from polyphrase.backbones.lean import Dropout, VocabularyLoss, make_lean
from polyphrase.backbones.memory import Memory


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(2, 40), st.integers(0, 1000))
def test_vocabulary_loss_is_cross_entropy(rows: int, words: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    states, weight, share = numbers(rows, 5), numbers(words, 5), numbers(rows).detach()
    chosen = torch.randint(words, (rows,), generator=generator)
    found = VocabularyLoss.apply(states, weight, chosen)
    expected = F.cross_entropy(states @ weight.t(), chosen, reduction="none")
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad((found * share).sum(), (states, weight)),
        torch.autograd.grad((expected * share).sum(), (states, weight)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_vocabulary_loss_survives_hopeless_words() -> None:
    """A probability that underflows still has its logarithm."""
    states = torch.tensor([[200.0, -200.0]])
    loss = VocabularyLoss.apply(states, torch.eye(2), torch.tensor([1]))
    torch.testing.assert_close(loss, torch.tensor([400.0]))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(1_000_003, requires_grad=True)
    y = Dropout(p)(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())
    kept = y.detach()[y.detach() > 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)))
    assert abs(float((y == 0).float().mean()) - p) < 0.002  # 4 standard deviations
    neighbours = (y[1:] == 0) & (y[:-1] == 0)
    assert abs(float(neighbours.float().mean()) - p * p) < 0.002


def test_dropout_follows_torchs_seed_and_rests_in_evaluation() -> None:
    dropout, x = Dropout(0.3), torch.randn(3, 5, 7)
    torch.manual_seed(1)
    first = dropout(x)
    torch.manual_seed(1)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout.eval()(x), x)


def tiny(tied: bool = False) -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=50,
        d_model=16,
        d_kv=4,
        d_ff=24,
        num_layers=2,
        num_heads=2,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
        dropout_rate=0.2,
    )
    config.tie_word_embeddings = config.scale_decoder_outputs = tied
    return T5ForConditionalGeneration(config).double()


def test_a_lean_network_is_the_same_function_with_the_same_weights() -> None:
    network = tiny().eval()
    names = list(network.state_dict())
    inputs = {"input_ids": torch.arange(12).view(2, 6), "labels": torch.arange(8).view(2, 4)}
    before = network(**inputs).logits
    make_lean(network)
    kinds = [type(module) for module in network.modules()]
    assert NewGELUActivation not in kinds
    assert nn.Dropout not in kinds
    assert list(network.state_dict()) == names
    torch.testing.assert_close(network(**inputs).logits, before)


@pytest.mark.parametrize("tied", [False, True])
def test_nll_of_a_t5_is_that_of_its_logits(tied: bool) -> None:
    network = tiny(tied).eval()
    memory = Memory(
        torch.randn(3, 5, 16, dtype=torch.float64), torch.arange(5) < torch.tensor([[5], [2], [4]])
    )
    labels = torch.tensor([[3, 4, 1, -100], [9, 1, -100, -100], [7, 8, 6, 1]])
    found = HuggingFaceBackbone(network).nll(memory, labels)
    logits = network(
        encoder_outputs=(memory.states,), attention_mask=memory.mask.long(), labels=labels
    ).logits
    expected = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(1)
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found.sum(), list(network.decoder.parameters())),
        torch.autograd.grad(expected.sum(), list(network.decoder.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
