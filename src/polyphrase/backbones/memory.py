"""What a decoder attends to."""

import dataclasses
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Memory:
    """The states of the source positions, and what else a decoder needs of the source.

    Attributes:
        states: the encoder's last hidden states h, or their fusion with z, `[R, N, D]`.
        mask: true at real positions, `[R, N]`.
        extras: further tensors of a system, one row for each row of `states` (the start state of
            a recurrent decoder, the source words that a pointer may copy, ...).

    One row is one source, or one sample of a source.
    """

    states: Tensor
    mask: Tensor
    extras: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.states.shape[0]

    def with_states(self, states: Tensor) -> "Memory":
        """The same source with other states; the original stays as it is."""
        return dataclasses.replace(self, states=states)

    def select(self, rows: Tensor) -> "Memory":
        """The given rows, in their order, repeated where an index repeats."""
        return Memory(
            self.states.index_select(0, rows),
            self.mask.index_select(0, rows),
            {name: tensor.index_select(0, rows) for name, tensor in self.extras.items()},
        )

    def repeat(self, times: int) -> "Memory":
        """Each row `times` times in succession: `[R * S, N, D]`."""
        rows = torch.arange(len(self), device=self.states.device).repeat_interleave(times)
        return self.select(rows)
