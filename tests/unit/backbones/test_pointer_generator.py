"""The pointer-generator against its equations, in float64, and its step-by-step decoder."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from polyphrase.backbones.executor import Rules
from polyphrase.backbones.memory import Memory
from polyphrase.backbones.pointer_generator import (
    PointerGenerator,
    PointerGeneratorConfig,
    State,
)
from polyphrase.data.codec import IGNORED
from polyphrase.decoding.search import run_search
from polyphrase.decoding.settings import Search

V, END, START = 9, 3, 2


def network(**options: Any) -> PointerGenerator:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": V,
        "embedding_size": 5,
        "encoder_size": 4,
        "decoder_size": 6,
        "attention_size": 7,
    }
    made = PointerGenerator(PointerGeneratorConfig(**{**sizes, **options})).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def batch() -> tuple[dict[str, Tensor], Tensor]:
    ids = torch.tensor([[4, V, 5, V, 4, V + 1], [6, V, 0, 0, 0, 0]])
    mask = torch.tensor([[1] * 6, [1, 1, 0, 0, 0, 0]])
    labels = torch.tensor([[V, 7, V + 1, 4, END], [V, END, IGNORED, IGNORED, IGNORED]])
    return {"input_ids": ids, "attention_mask": mask}, labels


@torch.no_grad()
def spoken(model: PointerGenerator, memory: Memory, labels: Tensor) -> Tensor:
    """log p of each next word, `[R, T, V + O]`, one step at a time under teacher forcing."""
    executor = model.executor(memory)
    tokens, steps = torch.full((len(memory),), START), []
    everyone = torch.arange(len(memory))
    for position in range(labels.shape[1]):
        features = executor.step(tokens, None if position == 0 else everyone)
        steps.append(executor.logits(features))
        tokens = labels[:, position].clamp(min=0)
    return torch.stack(steps, 1)


@pytest.mark.parametrize("coverage", [False, True])
def test_generated_and_copied_probabilities_sum_to_one(coverage: bool) -> None:
    model = network(coverage=coverage)
    sources, labels = batch()
    log_p = spoken(model, model.encode(sources), labels)
    assert log_p.shape == (2, 5, V + 2)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, 5).double(), rtol=0, atol=1e-14)
    # A source without a second unknown word never says it.
    assert bool((log_p[1, :, V + 1] == -torch.inf).all())


@pytest.mark.parametrize("coverage", [False, True])
def test_training_and_decoding_are_one_distribution(coverage: bool) -> None:
    model = network(coverage=coverage)
    sources, labels = batch()
    memory = model.encode(sources)
    log_p = spoken(model, memory, labels)
    real = labels != IGNORED
    expected = -(log_p.gather(2, labels.clamp(min=0)[..., None])[..., 0] * real).sum(-1)
    torch.testing.assert_close(model.nll(memory, labels), expected, rtol=1e-12, atol=1e-12)


def test_mixture_is_the_papers_equation() -> None:
    model = network()
    sources, _ = batch()
    memory = model.encode(sources)
    keys = model.attention.keys(memory.states)
    start = torch.full((2,), START)
    state, x, attention = model._advance(
        memory, keys, State.first(memory, False), model._fed(start)
    )
    # e_i = w . tanh(W_h x_i + W_s [s; c] + b), softmax over the real positions.
    for row, length in ((0, 6), (1, 2)):
        query = model.attention.query(torch.cat([state.hidden[row], state.cell[row]]))
        energy = torch.stack(
            [
                model.attention.energy(torch.tanh(model.attention.keys(position) + query))[0]
                for position in memory.states[row, :length]
            ]
        )
        torch.testing.assert_close(attention[row, :length], energy.softmax(0))
        assert bool((attention[row, length:] == 0).all())
        context = attention[row, :length] @ memory.states[row, :length]
        hidden = model.hidden(torch.cat([context, state.hidden[row]]))
        generated = model.output(hidden).softmax(0)
        gate = torch.sigmoid(
            model.switch(torch.cat([context, state.hidden[row], state.cell[row], x[row]]))
        )
        p = torch.zeros(V + 2).double()
        p[:V] = gate * generated
        for position in range(length):
            p[sources["input_ids"][row, position]] += (1 - gate[0]) * attention[row, position]
        executor = model.executor(memory)
        found = executor.logits(executor.step(start, None))[row].exp()
        torch.testing.assert_close(found, p.detach())


@pytest.mark.parametrize(("bias", "words"), [(60.0, "generated"), (-60.0, "copied")])
def test_the_switch_turns_copying_off_and_on(bias: float, words: str) -> None:
    model = network()
    with torch.no_grad():
        model.switch.weight.zero_()
        model.switch.bias.fill_(bias)
    sources, labels = batch()
    p = spoken(model, model.encode(sources), labels).exp()
    in_source = torch.zeros(2, V + 2, dtype=torch.bool)
    in_source[0, [4, 5, V, V + 1]] = True
    in_source[1, [6, V]] = True
    if words == "generated":
        assert float(p[..., V:].max()) < 1e-20
    else:
        assert float(p.masked_fill(in_source[:, None], 0).max()) < 1e-20


def test_padding_changes_nothing() -> None:
    model = network(coverage=True)
    sources, labels = batch()
    short = {name: tensor[1:, :2] for name, tensor in sources.items()}
    alone = model.losses(model.encode(short), labels[1:, :2])
    together = model.losses(model.encode(sources), labels)
    for one, both in zip(alone, together, strict=True):
        assert one is not None
        assert both is not None
        torch.testing.assert_close(one[0], both[1], rtol=1e-13, atol=1e-13)


def test_gradients_reach_everything_and_are_finite() -> None:
    model = network(coverage=True, bottleneck=3)
    sources, labels = batch()
    labels[0, 1] = 1  # a target word that nobody knows
    nll, again = model.losses(model.encode(sources), labels)
    assert again is not None
    (nll.sum() + again.sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert float(parameter.grad.abs().sum()) > 0, name


def test_a_word_that_cannot_be_said_costs_much_and_breaks_nothing() -> None:
    model = network()
    with torch.no_grad():
        model.switch.weight.zero_()
        model.switch.bias.fill_(-1e6)  # copies only
    sources, _ = batch()
    nll = model.nll(model.encode(sources), torch.tensor([[8], [8]]))
    nll.sum().backward()
    assert bool((nll > 500).all())
    assert all(
        bool(weight.grad.isfinite().all())
        for weight in model.parameters()
        if weight.grad is not None
    )


def test_coverage_starts_at_zero_and_counts_attention() -> None:
    model = network(coverage=True)
    sources, labels = batch()
    memory = model.encode(sources)
    # No attention has been paid before the first word, so there is nothing to repeat.
    first = model.losses(memory, labels[:, :1])[1]
    assert first is not None
    assert not bool(first.any())
    keys = model.attention.keys(memory.states)
    state = State.first(memory, True)
    for position in range(4):
        assert state.coverage is not None
        torch.testing.assert_close(
            state.coverage.sum(-1), torch.full((2,), float(position)).double()
        )
        state, _, _ = model._advance(
            memory, keys, state, model._fed(labels[:, position].clamp(min=0))
        )
    again = model.losses(memory, labels)[1]
    assert again is not None
    real = (labels != IGNORED).sum(1)
    assert bool(((again >= 0) & (again <= real - 1)).all())


def test_first_private_id_is_read_as_the_unknown_word() -> None:
    model = network()
    unknown = model.embedding.weight[1]
    torch.testing.assert_close(model.embed(torch.tensor([V, V + 1])), unknown.expand(2, -1))
    torch.testing.assert_close(model.embed(torch.tensor(V - 1)), model.embedding.weight[V - 1])


def test_sentences_of_a_batch_start_the_decoder_on_their_own() -> None:
    model = network()
    sources, _ = batch()
    first = model.encode(sources).extras
    sources["input_ids"][0] = 7
    second = model.encode(sources).extras
    for name in ("hidden", "cell"):
        torch.testing.assert_close(first[name][1], second[name][1], rtol=0, atol=0)
        assert not torch.equal(first[name][0], second[name][0])


def test_rows_branch_and_leave_by_parents_alone() -> None:
    model = network(coverage=True)
    sources, _ = batch()
    memory = model.encode(sources)
    executor = model.executor(memory)
    executor.step(torch.tensor([START, START]), None)
    executor.step(torch.tensor([4, V, V]), torch.tensor([0, 0, 1]))
    branched = executor.logits(executor.step(torch.tensor([5, 6]), torch.tensor([2, 1])))
    for row, (source, words) in enumerate([(1, [START, V, 5]), (0, [START, V, 6])]):
        alone = model.executor(memory.select(torch.tensor([source])))
        for word in words:
            features = alone.step(
                torch.tensor([word]), None if word == START else torch.tensor([0])
            )
        expected = alone.logits(features)[0]
        torch.testing.assert_close(branched[row, : len(expected)], expected)


@torch.no_grad()
def test_beam_search_finds_the_best_of_all_outputs() -> None:
    model = network().float()
    sources, _ = batch()
    memory = model.encode({name: tensor[:1] for name, tensor in sources.items()})
    length, words = 3, [4, 5, 6, 7, 8, V, V + 1]
    best: tuple[float, list[int]] = (-torch.inf, [])
    for count in range(length):
        for said in itertools.product(words, repeat=count):
            output = [*said, END]
            log_p = -float(model.nll(memory, torch.tensor([output])))
            best = max(best, (log_p / len(output), output))
    for said in itertools.product(words, repeat=length):
        log_p = -float(model.nll(memory, torch.tensor([said])))
        best = max(best, (log_p / length, list(said)))
    found = run_search(
        model.executor(memory),
        1,
        Search(beams=60, max_length=length),
        Rules(end=END, forbidden=(0, 1, 2)),
        START,
        0,
        torch.device("cpu"),
    )
    tokens = found.tokens[0, 0].tolist()
    if END in tokens:
        tokens = tokens[: tokens.index(END) + 1]
    assert tokens == best[1]
    assert float(found.score[0, 0]) == pytest.approx(best[0], abs=1e-5)


class Operations(TorchDispatchMode):
    """Counts what torch is asked to do."""

    count = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def operations(sources: int, words: int = 5, vocabulary: int = V) -> int:
    """Of one training step, on sentences of six words."""
    model = network(coverage=True, vocab_size=vocabulary)
    ids = torch.arange(6 * sources).view(sources, 6) % V
    labels = torch.arange(words * sources).view(sources, words) % V
    with Operations() as counted:
        memory = model.encode({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        nll, again = model.losses(memory, labels)
        assert again is not None
        (nll.sum() + again.sum()).backward()
    return counted.count


def test_training_loops_over_target_steps_alone() -> None:
    few = operations(2)
    assert operations(9) == few
    assert operations(2, vocabulary=70) == few
    assert operations(2, words=10) > few


def test_attention_reads_a_memory_once() -> None:
    model = network().float()
    sources, labels = batch()
    memory = model.encode(sources)
    read = []
    model.attention.keys.register_forward_hook(lambda *_: read.append(1))
    model.nll(memory, labels)
    assert len(read) == 1
    search = Search(beams=3, max_length=6)
    rules = Rules(end=END, forbidden=(0, 1, 2))
    with torch.no_grad():
        run_search(model.executor(memory), 2, search, rules, START, 0, torch.device("cpu"))
    assert len(read) == 2


def test_focus_reaches_the_states() -> None:
    model = network(focus_size=3)
    sources, _ = batch()
    focus = torch.zeros_like(sources["input_ids"])
    plain = model.encode({**sources, "focus": focus}).states
    focus[0, 2] = 1
    focused = model.encode({**sources, "focus": focus}).states
    assert not torch.equal(plain[0], focused[0])
    torch.testing.assert_close(plain[1], focused[1])


@pytest.mark.parametrize(
    ("options", "count"),
    [({"coverage": True}, 25_597_833), ({"coverage": True, "bottleneck": 256}, 26_123_401)],
)
def test_size_is_the_papers(options: dict[str, Any], count: int) -> None:
    with torch.device("meta"):
        model = PointerGenerator(PointerGeneratorConfig(**options))
    assert sum(parameter.numel() for parameter in model.parameters()) == count
