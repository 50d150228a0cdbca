"""Which search, and its knobs."""

import math
from dataclasses import dataclass
from typing import Literal

from ..errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Search:
    """How words are chosen. Orthogonal to the latent: every search runs under every z.

    Attributes:
        method: `beam` (the paper, 10 beams), `greedy`, `diverse-beam` (Vijayakumar et al. 2016) or
            `sample` (with `top_k`, Fan et al. 2018; `top_p`, nucleus, Holtzman et al. 2019;
            `temperature`).
        beams: the width of beam search, over all groups together.
        groups: into how many groups diverse beam search cuts its beams.
        diversity: what a word costs in diverse beam search for each earlier group that has just
            chosen it, in nats.
        length_penalty: a finished hypothesis scores log p / length ** length_penalty.
        temperature: logits are divided by it before a word is drawn.
        top_k: draw among this many likeliest words; 0 is all.
        top_p: draw among the likeliest words that together hold this probability.
        max_length: the most words of an output, its end included.
        min_length: the fewest words before the end.
        no_repeat_ngram: no output holds any n words twice; 0 is off.
    """

    method: Literal["beam", "greedy", "diverse-beam", "sample"] = "beam"
    beams: int = 10
    groups: int = 5
    diversity: float = 0.5
    length_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_length: int = 60
    min_length: int = 0
    no_repeat_ngram: int = 0

    def __post_init__(self) -> None:
        if self.beams < 1:
            raise BadInput(f"beams is {self.beams}: give 1 or more")
        if self.method == "diverse-beam" and (self.groups < 1 or self.beams % self.groups):
            raise BadInput(
                f"{self.beams} beams do not divide into {self.groups} groups: "
                "give a number of groups that divides the number of beams"
            )
        for name in ("diversity", "length_penalty", "temperature"):
            if not math.isfinite(getattr(self, name)):
                raise BadInput(f"{name} is {getattr(self, name)}: give a finite number")
        if self.diversity < 0:
            raise BadInput(f"diversity is {self.diversity}: give 0 or more")
        if self.temperature <= 0:
            raise BadInput(f"temperature is {self.temperature}: give a positive number")
        if self.top_k < 0:
            raise BadInput(f"top_k is {self.top_k}: give 0 (all words) or more")
        if not 0 < self.top_p <= 1:
            raise BadInput(f"top_p is {self.top_p}: give a number above 0, at most 1")
        if self.no_repeat_ngram < 0 or self.no_repeat_ngram == 1:
            raise BadInput(
                f"no_repeat_ngram is {self.no_repeat_ngram}: give 2 or more words, or 0 for off"
            )
        if not 0 <= self.min_length < self.max_length:
            raise BadInput(
                f"min_length is {self.min_length} and max_length {self.max_length}: "
                "give 0 <= min_length < max_length"
            )

    @property
    def stochastic(self) -> bool:
        """True when two runs with different seeds may choose different words."""
        return self.method == "sample"

    @property
    def width(self) -> int:
        """How many hypotheses run at once for one memory, and so how many can be returned."""
        return self.beams if self.method in ("beam", "diverse-beam") else 1
