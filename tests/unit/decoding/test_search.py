"""The search loop on decoders that are plain tables, where the truth can be enumerated."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import TopKLogitsWarper, TopPLogitsWarper

from polyphrase.backbones.executor import Rules
from polyphrase.decoding import words as words_module
from polyphrase.decoding.search import draw, run_search
from polyphrase.decoding.settings import Search
from polyphrase.decoding.words import _summary, _top

END = 0
CPU = torch.device("cpu")


class Table:
    """An executor whose next word depends on the whole prefix: logits from a hash of it."""

    def __init__(self, rows: int, words: int, seed: int, sharpness: float = 2.0) -> None:
        self.words, self.seed, self.sharpness = words, seed, sharpness
        self.prefixes: list[tuple[int, ...]] = [(row,) for row in range(rows)]
        self.sizes: list[int] = []

    def of(self, prefix: tuple[int, ...]) -> Tensor:
        """Logits after a prefix, whose first item is the row of the memory."""
        number = hash((self.seed, *prefix)) % 2**40  # of integers: the same in every process
        return self.sharpness * torch.randn(
            self.words, generator=torch.Generator().manual_seed(number)
        )

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        if parents is not None:
            self.prefixes = [
                (*self.prefixes[parent], word)
                for parent, word in zip(parents.tolist(), tokens.tolist(), strict=True)
            ]
        self.sizes.append(len(self.prefixes))
        return torch.stack([self.of(prefix) for prefix in self.prefixes])

    def logits(self, features: Tensor) -> Tensor:
        return features


def everything(table: Table, row: int, length: int, shortest: int) -> dict[tuple[int, ...], float]:
    """log p of every output of at most `length` words, those that are cut there included."""
    outputs = {}

    def extend(words: tuple[int, ...], log_p: float) -> None:
        step = table.of((row, *words)).log_softmax(-1).tolist()
        for word, gain in enumerate(step):
            if word == END and len(words) < shortest:
                continue
            longer = (*words, word)
            if word == END or len(longer) == length:
                outputs[longer] = log_p + gain
            else:
                extend(longer, log_p + gain)

    extend((), 0.0)
    return outputs


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("shortest", [0, 2])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_as_wide_as_the_tree_finds_the_best_of_all(
    seed: int, shortest: int, penalty: float
) -> None:
    rows, words, length = 3, 4, 4
    width = words**length
    search = Search(beams=width, max_length=length, min_length=shortest, length_penalty=penalty)
    found = run_search(Table(rows, words, seed), rows, search, Rules(END), 9, 0, CPU)
    for row in range(rows):
        exact = everything(Table(rows, words, seed), row, length, shortest)
        best = sorted(exact, key=lambda words: -exact[words] / len(words) ** penalty)
        real = found.score[row] > -math.inf
        assert int(real.sum()) == len(exact)
        for rank, output in enumerate(best):
            tokens = found.tokens[row, rank].tolist()
            assert tokens == [*output, *[0] * (length - len(output))]
            log_p = float(found.log_probability[row, rank])
            assert log_p == pytest.approx(exact[output], abs=1e-4)


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(2, 6), st.integers(0, 2))
@settings(max_examples=40, deadline=None)
def test_a_narrow_beam_gives_real_outputs_in_order(
    seed: int, beams: int, words: int, shortest: int
) -> None:
    length = 4
    search = Search(beams=beams, max_length=length, min_length=shortest)
    table = Table(2, words, seed)
    found = run_search(table, 2, search, Rules(END), 9, 0, CPU)
    assert max(table.sizes) <= 2 * beams
    for row in range(2):
        exact = everything(Table(2, words, seed), row, length, shortest)
        seen = []
        for tokens, log_p, score in zip(
            found.tokens[row].tolist(), found.log_probability[row], found.score[row], strict=True
        ):
            if score == -math.inf:
                continue
            output = tuple(tokens[: tokens.index(END) + 1] if END in tokens else tokens)
            assert float(log_p) == pytest.approx(exact[output], abs=1e-4)
            assert float(score) == pytest.approx(exact[output] / len(output), abs=1e-4)
            seen.append(output)
        assert len(set(seen)) == len(seen) >= 1
        assert found.score[row].tolist() == sorted(found.score[row].tolist(), reverse=True)


def test_rows_do_not_see_each_other() -> None:
    """Each row of a batch gives what it gives alone, whoever leaves the batch before it."""
    for search in (
        Search(beams=3, max_length=9),
        Search(method="diverse-beam", beams=4, groups=2, max_length=9),
        Search(method="greedy", max_length=9),
        Search(method="sample", top_p=0.8, max_length=9),
    ):
        uniforms = torch.rand(8, 9, generator=torch.Generator().manual_seed(1))
        together = run_search(Table(8, 4, 3), 8, search, Rules(END), 9, 0, CPU, uniforms)
        lengths = set()
        for row in range(8):
            alone = Table(1, 4, 3)
            alone.prefixes = [(row,)]
            one = run_search(alone, 1, search, Rules(END), 9, 0, CPU, uniforms[row : row + 1])
            assert torch.equal(one.tokens[0], together.tokens[row])
            assert torch.equal(one.log_probability[0], together.log_probability[row])
            lengths.add(len(alone.sizes))
        assert len(lengths) > 1


# Exact block top-k --------------------------------------------------------------------------------


@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([7, 64, 128, 256, 384, 640, 129]),
    st.integers(1, 24),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_block_top_k_is_the_flat_one(
    seed: int, groups: int, width: int, words: int, count: int, forbidden: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(groups, width, words, generator=generator)
    if forbidden:
        logits[..., torch.randperm(words, generator=generator)[: words // 3]] = -torch.inf
    offset = torch.randn(groups, width, generator=generator)
    scores, rows, found = _top(logits, offset, count)
    flat = (logits + offset[..., None]).flatten(1)
    there = min(count, flat.shape[1])
    torch.testing.assert_close(scores[:, :there], flat.topk(there).values, rtol=0, atol=0)
    assert bool((scores[:, there:] == -torch.inf).all())
    real = scores > -torch.inf
    at = (rows * words + found)[:, :count]
    assert torch.equal(flat.gather(1, at)[real], scores[real])
    for group in range(groups):
        places = at[group][real[group]].tolist()
        assert len(set(places)) == len(places)


def test_blocks_are_used_where_words_are_many() -> None:
    assert 32128 % words_module._BLOCK == 0  # T5's vocabulary


@given(st.integers(0, 10**6), st.floats(0.1, 30))
@settings(max_examples=30, deadline=None)
def test_normaliser_is_logsumexp(seed: int, scale: float) -> None:
    logits = scale * torch.randn(37, 300, generator=torch.Generator().manual_seed(seed))
    before = logits.clone()
    normaliser, peaks = _summary(logits, [3, 7])
    torch.testing.assert_close(normaliser, logits.logsumexp(-1), rtol=1e-5, atol=1e-5)
    assert peaks is None  # 300 words are no whole number of blocks
    assert torch.equal(logits, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(st.integers(0, 10**6), st.lists(st.integers(0, 511), max_size=4))
@settings(max_examples=30, deadline=None)
def test_forbidden_words_are_left_out_of_blocks(
    dtype: torch.dtype, seed: int, forbidden: list[int]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (4 * torch.randn(3, 7, 512, generator=generator)).to(dtype)
    logits[..., forbidden] += 20  # what nobody may say would be said first
    offset = torch.randn(3, 7, generator=generator)
    normaliser, peaks = _summary(logits.flatten(0, 1), forbidden)
    torch.testing.assert_close(
        normaliser, logits.flatten(0, 1).float().logsumexp(-1), rtol=1e-5, atol=1e-5
    )
    found = _top(logits, offset, 14, peaks, forbidden)
    allowed = logits.float()
    allowed[..., forbidden] = -torch.inf
    expected = (allowed + offset[..., None]).flatten(1).topk(14).values
    assert torch.equal(found[0], expected)
    assert not set(found[2].flatten().tolist()) & set(forbidden)


# Drawing ------------------------------------------------------------------------------------------

KEPT: list[tuple[Search, Callable[[Tensor], Tensor]]] = [
    (Search(method="sample"), lambda logits: logits),
    (Search(method="sample", temperature=0.6), lambda logits: logits / 0.6),
    (
        Search(method="sample", top_k=5),
        lambda logits: TopKLogitsWarper(5)(torch.empty(0), logits),
    ),
    (
        Search(method="sample", top_p=0.7),
        lambda logits: TopPLogitsWarper(0.7)(torch.empty(0), logits),
    ),
    (
        Search(method="sample", top_k=8, top_p=0.6, temperature=1.7),
        lambda logits: TopPLogitsWarper(0.6)(
            torch.empty(0), TopKLogitsWarper(8)(torch.empty(0), logits / 1.7)
        ),
    ),
]


@pytest.mark.parametrize(("search", "warped"), KEPT)
@pytest.mark.parametrize("seed", range(3))
def test_words_are_drawn_as_often_as_they_are_likely(
    search: Search, warped: Callable[[Tensor], Tensor], seed: int
) -> None:
    """Over a regular grid of uniforms each word comes as often as its probability says."""
    logits = 2 * torch.randn(1, 40, generator=torch.Generator().manual_seed(seed))
    times = 20_000
    grid = (torch.arange(times, dtype=torch.float64) + 0.5) / times
    drawn = draw(logits.expand(times, -1), grid, search)
    counts = torch.bincount(drawn, minlength=40)
    expected = warped(logits.clone()).softmax(-1)[0] * times
    assert torch.equal(counts[expected == 0], torch.zeros_like(counts[expected == 0]))
    assert float((counts - expected).abs().max()) <= 1.1  # a grid rounds, it does not stray


@pytest.mark.parametrize(("search", "warped"), KEPT)
def test_random_uniforms_pass_a_chi_square_test(
    search: Search, warped: Callable[[Tensor], Tensor]
) -> None:
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(4))
    times = 30_000
    uniforms = torch.rand(times, generator=torch.Generator().manual_seed(5))
    counts = torch.bincount(draw(logits.expand(times, -1), uniforms, search), minlength=12)
    expected = warped(logits.clone()).softmax(-1)[0] * times
    able = expected > 0
    freedom = int(able.sum()) - 1
    chi_square = float(((counts - expected)[able].square() / expected[able]).sum())
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


@given(
    st.integers(0, 10**6),
    st.integers(0, 60),
    st.floats(0.05, 1.0),
    st.sampled_from([50, 1500]),
)
@settings(max_examples=40, deadline=None)
def test_the_words_that_may_be_drawn_are_those_of_transformers(
    seed: int, top_k: int, top_p: float, words: int
) -> None:
    logits = 3 * torch.randn(2, words, generator=torch.Generator().manual_seed(seed))
    kept = logits
    if top_k:
        kept = TopKLogitsWarper(top_k)(torch.empty(0), kept)
    if top_p < 1:
        kept = TopPLogitsWarper(top_p)(torch.empty(0), kept)
    times = 4_000
    grid = (torch.arange(times, dtype=torch.float64) + 0.5) / times
    search = Search(method="sample", top_k=top_k, top_p=top_p)
    for row in range(2):
        drawn = set(draw(logits[row].expand(times, -1), grid, search).tolist())
        allowed = (kept[row] > -torch.inf).nonzero()[:, 0].tolist()
        assert drawn <= set(allowed)
        p = kept[row].softmax(-1)
        assert {word for word in allowed if float(p[word]) > 1.5 / times} <= drawn


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24, 0.5])
def test_the_ends_of_the_unit_interval_draw_possible_words(uniform: float) -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 1.0, -torch.inf]])
    for search in (Search(method="sample"), Search(method="sample", top_p=0.9)):
        assert int(draw(logits, torch.tensor([uniform]), search)) in (1, 3)


def test_every_combination_of_words_can_come() -> None:
    search = Search(method="sample", max_length=2)
    uniforms = torch.tensor(list(itertools.product([0.01, 0.35, 0.6, 0.99], repeat=2)))
    table = Table(len(uniforms), 3, 0, sharpness=0.1)
    table.prefixes = [(0,)] * len(uniforms)
    found = run_search(table, len(uniforms), search, Rules(2), 9, 2, CPU, uniforms)
    outputs = {tuple(words) for words in found.tokens[:, 0].tolist()}
    assert outputs == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 2)}
