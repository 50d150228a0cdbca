"""One z per sample, drawn once before the search; every beam and step of the sample sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..backbones.executor import Executor, Rules
from ..backbones.memory import Memory
from ..errors import BadInput
from ..latent.latent import Beliefs
from .hypotheses import Hypotheses
from .randomness import latent_noise, word_uniforms
from .search import run_search
from .settings import Search


class System(Protocol):
    """What generation asks of a model: the stages of `LatentSeq2Seq`."""

    start_token: int
    pad_token: int
    rules: Rules

    def encode(self, sources: Mapping[str, Tensor]) -> Memory:
        """The states h = f_enc(x)."""

    def beliefs(self, memory: Memory) -> Beliefs | None:
        """p(z|h) and q(z|h), if there is a z."""

    def fuse(self, memory: Memory, z: Tensor) -> Memory:
        """The memory under one z per row."""

    def executor(self, memory: Memory) -> Executor:
        """The decoder over a memory."""


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

    With a latent and `spread > 0`, sample k has a z of its own and gives the best hypothesis under
    it. Without (no latent, or `spread = 0`: the posterior mean), a stochastic search draws
    sample k on its own, and any other returns its n best hypotheses.

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
    beliefs = system.beliefs(memory)
    drawn = beliefs is not None and spread > 0
    if beliefs is not None and drawn:
        size = beliefs.mean.shape[-1]
        noise = latent_noise(seed, names, samples, memory.mask, size)
        z = beliefs.sample(noise.to(memory.states.device), spread)  # [S, B, N, D]
        memory = system.fuse(memory.repeat(len(samples)), z.transpose(0, 1).flatten(0, 1))
    elif beliefs is not None:
        memory = system.fuse(memory, beliefs.mean)
    if search.stochastic and not drawn:
        memory = memory.repeat(len(samples))
    uniforms = None
    if search.stochastic:
        uniforms = word_uniforms(seed, names, samples, search.max_length)
        uniforms = uniforms.to(memory.states.device)
    found = run_search(
        system.executor(memory),
        len(memory),
        search,
        system.rules,
        system.start_token,
        system.pad_token,
        memory.states.device,
        uniforms,
    )
    if drawn or search.stochastic:
        rows = [(row, 0) for row in range(len(memory))]
    else:
        if max(samples) >= search.width:
            raise BadInput(
                f"{max(samples) + 1} outputs of one deterministic {search.method} search of width "
                f"{search.width}: give at least as many beams, sample words "
                "(--search sample), or use a model with a latent and a spread above 0"
            )
        rows = [(row, rank) for row in range(len(memory)) for rank in samples]
    outputs = _outputs(found, rows, system.rules.end)
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
