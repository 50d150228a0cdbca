"""Generation asks the system for its memories, and nothing else about it."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from polyphrase.backbones.executor import Executor, Rules
from polyphrase.backbones.memory import Memory
from polyphrase.decoding.generate import generate
from polyphrase.decoding.settings import Search
from polyphrase.models.system import Draws

END, WORDS = 1, 8


class Mixture:
    """Each source has two memories; a memory's number is the word it likes, and how much."""

    has_latent = True
    start_token = pad_token = 0
    rules = Rules(end=END)

    def encode(self, sources: Mapping[str, Tensor]) -> Memory:
        ids = sources["input_ids"]
        return Memory(ids[..., None].float(), torch.ones_like(ids, dtype=torch.bool))

    def expected(self, memory: Memory) -> Memory:
        """Memory a of source w likes the word w + a."""
        twice = memory.repeat(2)
        add = torch.arange(2).repeat(len(memory))[:, None, None]
        return twice.with_states(twice.states + add)

    def sampled(self, memory: Memory, draws: Draws) -> Memory:
        """Sample k likes the word w + k."""
        repeated = memory.repeat(len(draws.numbers))
        add = torch.tensor(list(draws.numbers)).repeat(len(memory))[:, None, None]
        return repeated.with_states(repeated.states + add)

    def executor(self, memory: Memory) -> Executor:
        return Liking(memory.states[:, 0, 0].long())


class Liking:
    """Says the liked word, the more surely the greater its number, then the end."""

    def __init__(self, liked: Tensor) -> None:
        self._liked = liked

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        if parents is not None:
            self._liked = self._liked[parents]
        said = torch.zeros_like(self._liked) if parents is None else torch.ones_like(self._liked)
        return torch.stack([self._liked, said], -1).float()

    def logits(self, features: Tensor) -> Tensor:
        liked, over = features[:, 0].long(), features[:, 1] > 0
        logits = torch.zeros(len(features), WORDS)
        logits[torch.arange(len(features)), liked] = liked.float()
        logits[over] = torch.where(torch.arange(WORDS) == END, 0.0, -torch.inf)
        return logits


def said(spread: float, samples: range, search: Search) -> list[list[int]]:
    sources = {"input_ids": torch.tensor([[2], [5]])}
    found = generate(Mixture(), sources, ["two", "five"], samples, spread, 0, search)
    assert [[output.sample for output in outputs] for outputs in found] == [[*samples]] * 2
    assert all(output.tokens[-1] == END for outputs in found for output in outputs)
    return [[output.tokens[0] for output in outputs] for outputs in found]


def test_each_sample_has_the_memory_that_the_system_gives_it() -> None:
    assert said(1.0, range(3), Search(method="greedy", max_length=4)) == [[2, 3, 4], [5, 6, 7]]
    assert said(1.0, range(1, 3), Search(beams=3, max_length=4)) == [[3, 4], [6, 7]]


def test_memories_of_one_source_compete_for_the_best_output() -> None:
    assert said(0.0, range(1), Search(method="greedy", max_length=4)) == [[3], [6]]
    best, second = zip(*said(0.0, range(2), Search(beams=2, max_length=4)), strict=True)
    assert best == (3, 6)
    assert second == (2, 5)


@pytest.mark.parametrize("samples", [range(3), range(2, 3)])
def test_drawn_words_keep_the_better_memory(samples: range) -> None:
    search = Search(method="sample", top_k=1, max_length=4)
    assert said(0.0, samples, search) == [[3] * len(samples), [6] * len(samples)]
