"""What is minimised: the negative evidence lower bound per target token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Objective:
    """loss = [ sum_b -log p(y_b | z_b) + w KL_b + c_b ] / (number of target tokens), eq. (13).

    c is what a system pays for beside the bound: 0 but for coverage and for the training of
    selectors.

    Attributes:
        kl_weight: w; 1 is the bound itself, and the paper's.
        annealing_steps: w grows from 0 over this many steps; 0 is none, and the paper's.
        free_bits: nats of KL per sentence that cost nothing (Kingma et al. 2016).
    """

    kl_weight: float = 1.0
    annealing_steps: int = 0
    free_bits: float = 0.0

    def __post_init__(self) -> None:
        for name in ("kl_weight", "free_bits"):
            if not math.isfinite(getattr(self, name)):
                raise BadInput(f"{name} is {getattr(self, name)}: give a finite number from 0 up")
        for name in ("kl_weight", "annealing_steps", "free_bits"):
            if getattr(self, name) < 0:
                raise BadInput(f"{name} is {getattr(self, name)}: give 0 or more")

    def weight(self, step: int) -> float:
        """W after `step` updates."""
        if self.annealing_steps == 0:
            return self.kl_weight
        return self.kl_weight * min(1.0, step / self.annealing_steps)

    def loss(
        self,
        nll: Tensor,
        kl: Tensor,
        tokens: Tensor | int,
        step: int,
        penalty: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch.

        Args:
            nll: -log p(y | z) per sentence, `[B]`.
            kl: nats per sentence, `[B]`.
            tokens: target tokens of the batch, or of all the batches of one update.
            step: how many updates have been made.
            penalty: c per sentence, `[B]`, if there is any.
        """
        if self.free_bits:
            kl = kl.clamp(min=self.free_bits)
        total = nll.sum() + self.weight(step) * kl.sum()
        if penalty is not None:
            total = total + penalty.sum()
        return total / tokens
