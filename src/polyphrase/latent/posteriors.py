"""The posterior heads f_μ and f_σ² (paper, section 3): one linear layer each."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Heads(nn.Module):
    """What the encoder's states say of z: a mean and a log-variance, each linear in h.

    When they start at the prior both layers are zero at first, and are added to a mean and a
    log-variance that the prior gives; otherwise they stand alone, as in the paper.

    Shapes: G sentences of equal length, n positions, D_h encoder and D latent dimensions.
    """

    def __init__(self, hidden_size: int, size: int, *, start_at_zero: bool) -> None:
        super().__init__()
        self.mean = nn.Linear(hidden_size, size)
        self.log_variance = nn.Linear(hidden_size, size)
        if start_at_zero:
            for parameter in self.parameters():
                nn.init.zeros_(parameter)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """[G, n, D_h] to a mean and a log-variance, [G, n, D]."""
        return rowwise(states, self.mean), rowwise(states, self.log_variance)


def rowwise(states: Tensor, layer: nn.Linear) -> Tensor:
    """The layer applied to each sentence by itself, [G, n, D_h] to [G, n, D].

    One product over the rows of all sentences would round a row differently with the number of rows
    around it; a product per sentence does not.
    """
    kind = states.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    else:
        dtype = torch.promote_types(states.dtype, layer.weight.dtype)
    result = dtype if dtype.itemsize > 2 else torch.float32
    with torch.autocast(kind, enabled=False):
        product = _Rowwise.apply(states.to(dtype), layer.weight.to(dtype)).to(result)
        return product if layer.bias is None else product + layer.bias.to(result)


class _Rowwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(states, weight)
        return states @ weight.mT.expand(states.shape[0], -1, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        states, weight = ctx.saved_tensors
        of_states = of_weight = None
        if ctx.needs_input_grad[0]:
            of_states = gradient @ weight.expand(states.shape[0], -1, -1)
        if ctx.needs_input_grad[1]:
            of_weight = gradient.flatten(0, 1).mT @ states.flatten(0, 1)
        return of_states, of_weight
