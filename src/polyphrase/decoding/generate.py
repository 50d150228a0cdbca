"""One z per sample, drawn once before the search; every beam and step of the sample sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import BadInput
from ..models.system import System
from .hypotheses import Hypotheses
from .randomness import latent_noise, word_uniforms
from .search import run_search
from .settings import Search


@dataclass(frozen=True)
class Output:
    """One generated sequence.

    Attributes:
        tokens: words and end token, no padding.
        sample: the number of the sample, or the rank in an n-best list.
        log_probability: log p(y | z).
        rank: its place among the hypotheses of its sample, 0 the best.
    """

    tokens: list[int]
    sample: int
    log_probability: float
    rank: int = 0


class NamedDraws:
    """The random numbers of samples, by name: see `polyphrase.models.system.Draws`.

    Args:
        seed: the user's seed.
        names: B texts, which name the random streams.
        numbers: S sample numbers.
        spread: of the latent.
        length: the most words of an output.
        device: where the numbers are wanted.
    """

    def __init__(
        self,
        seed: int,
        names: Sequence[str],
        numbers: Sequence[int],
        spread: float,
        length: int,
        device: torch.device,
    ) -> None:
        self.numbers = numbers
        self.spread = spread
        self._seed = seed
        self._names = names
        self._length = length
        self._device = device

    def normal(self, mask: Tensor, size: int) -> Tensor:
        """Noise for z, `[S, B, N, size]`, zero at padding."""
        return latent_noise(self._seed, self._names, self.numbers, mask, size).to(self._device)

    def uniform(self, purpose: str = "z") -> Tensor:
        """A number in [0, 1) for each word, `[B * S, T]`, for the latent or for the search."""
        numbers = word_uniforms(self._seed, self._names, self.numbers, self._length, purpose)
        return numbers.to(self._device)


@torch.inference_mode()
def generate(
    system: System,
    sources: Mapping[str, Tensor],
    names: Sequence[str],
    samples: Sequence[int],
    spread: float,
    seed: int,
    search: Search,
    ranks: int = 1,
) -> list[list[Output]]:
    """Generate one output per source and sample number, or a few where samples are drawn.

    With a latent and `spread > 0`, sample k has a latent of its own and gives the best hypothesis
    under it. Without (no latent, or `spread = 0`: what is expected of it), a stochastic search
    draws sample k on its own, and any other returns its n best hypotheses.

    Args:
        system: the model.
        sources: the encoded batch.
        names: the texts, which name the random streams.
        samples: the numbers of the samples wanted.
        spread: multiplies the posterior's covariance.
        seed: the user's seed.
        search: how words are chosen.
        ranks: hypotheses of each drawn sample that are wanted at most, the best first.
    """
    memory = system.encode(sources)
    device = memory.states.device
    draws = NamedDraws(seed, names, samples, spread, search.max_length, device)
    drawn = system.has_latent and spread > 0
    memory = system.sampled(memory, draws) if drawn else system.expected(memory)
    uniforms = None
    if search.stochastic:
        uniforms = draws.uniform("words")
        if not drawn:  # sample k of each memory of a source draws the same numbers
            times = len(memory) // len(names)
            memory = memory.repeat(len(samples))
            by_source = uniforms.unflatten(0, (len(names), 1, len(samples)))
            uniforms = by_source.expand(-1, times, -1, -1).flatten(0, 2)
    found = run_search(
        system.executor(memory),
        len(memory),
        search,
        system.rules,
        system.start_token,
        system.pad_token,
        device,
        uniforms,
    )
    if drawn or search.stochastic:
        # [B, A, S] rows with one output each: of A memories of a sample, the best speaks.
        score = found.score[:, 0].view(len(names), -1, len(samples))
        best = score.argmax(1, keepdim=True)  # [B, 1, S]
        rows = torch.arange(len(memory), device=device).view_as(score).gather(1, best)
        there = found.score.isfinite().sum(1).clamp(1, ranks).tolist()
        places = [
            [
                (row, rank, sample, rank)
                for sample, row in zip(samples, by_sample, strict=True)
                for rank in range(there[row])
            ]
            for by_sample in rows[:, 0].tolist()
        ]
    else:
        refuse_more_than_one_search_finds(max(samples) + 1, search)
        places = _n_best(found, len(names), samples)
    return _outputs(found, places, system.rules.end)


def refuse_more_than_one_search_finds(n: int, search: Search) -> None:
    """Refuse n outputs of one memory under a search without chance that finds fewer."""
    if n > search.width:
        raise BadInput(
            f"{n} outputs of one deterministic {search.method} search of width {search.width}: "
            "give at least as many beams, sample words (--search sample), or use a model with a "
            "latent and a spread above 0"
        )


Place = tuple[int, int, int, int]
"""The row of a hypothesis and its place there; the number and the rank that it is given."""


def _n_best(found: Hypotheses, sources: int, samples: Sequence[int]) -> list[list[Place]]:
    """The hypothesis for each wanted number of each source, whose memories compete.

    A source with fewer hypotheses than ranks (a system that can say one thing only) gives its last
    one again.
    """
    rows, count = found.score.shape
    score = found.score.view(sources, -1)
    if rows == sources:  # a search has its own idea of an order
        order = score.isinf().long().argsort(dim=-1, stable=True)
    else:
        order = score.argsort(dim=-1, descending=True, stable=True)
    last = score.isfinite().sum(-1).clamp(min=1) - 1
    each = rows // sources
    best = [
        [int(order[source, min(k, int(last[source]))]) for k in samples]
        for source in range(sources)
    ]
    return [
        [
            (source * each + place // count, place % count, sample, 0)
            for sample, place in zip(samples, places, strict=True)
        ]
        for source, places in enumerate(best)
    ]


def _outputs(found: Hypotheses, places: list[list[Place]], end: int) -> list[list[Output]]:
    tokens, log_probability = found.tokens.tolist(), found.log_probability.tolist()

    def output(row: int, place: int, sample: int, rank: int) -> Output:
        sequence = tokens[row][place]
        if end in sequence:
            sequence = sequence[: sequence.index(end) + 1]
        return Output(sequence, sample, log_probability[row][place], rank)

    return [[output(*place) for place in of_source] for of_source in places]
