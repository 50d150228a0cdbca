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
    """

    tokens: list[int]
    sample: int
    log_probability: float


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
) -> list[list[Output]]:
    """Generate one output per source and sample number.

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
        places = [(row, 0) for row in rows.flatten().tolist()]
    else:
        refuse_more_than_one_search_finds(max(samples) + 1, search)
        places = _n_best(found, len(names), samples)
    outputs = _outputs(found, places, system.rules.end)
    width = len(samples)
    return [
        [
            Output(tokens, sample, log_probability)
            for sample, (tokens, log_probability) in zip(
                samples, outputs[start : start + width], strict=True
            )
        ]
        for start in range(0, len(outputs), width)
    ]


def refuse_more_than_one_search_finds(n: int, search: Search) -> None:
    """Refuse n outputs of one memory under a search without chance that finds fewer."""
    if n > search.width:
        raise BadInput(
            f"{n} outputs of one deterministic {search.method} search of width {search.width}: "
            "give at least as many beams, sample words (--search sample), or use a model with a "
            "latent and a spread above 0"
        )


def _n_best(found: Hypotheses, sources: int, samples: Sequence[int]) -> list[tuple[int, int]]:
    """The row and the place in it of each wanted rank of each source, whose memories compete.

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
    return [
        (source * (rows // sources) + place // count, place % count)
        for source in range(sources)
        for place in (int(order[source, min(rank, int(last[source]))]) for rank in samples)
    ]


def _outputs(
    found: Hypotheses, rows: Sequence[tuple[int, int]], end: int
) -> list[tuple[list[int], float]]:
    tokens, log_probability = found.tokens.tolist(), found.log_probability.tolist()
    outputs = []
    for row, rank in rows:
        sequence = tokens[row][rank]
        if end in sequence:
            sequence = sequence[: sequence.index(end) + 1]
        outputs.append((sequence, log_probability[row][rank]))
    return outputs
