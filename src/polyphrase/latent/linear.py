"""Linear layers whose output for a sentence does not depend on the sentences beside it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def projection(hidden_size: int, size: int) -> nn.Module:
    """The identity, or where the sizes differ a learned map that starts out orthogonal."""
    if size == hidden_size:
        return nn.Identity()
    layer = nn.Linear(hidden_size, size, bias=False)
    nn.init.orthogonal_(layer.weight)
    return layer


def by_sentence(states: Tensor, layer: nn.Module) -> Tensor:
    """The layer at each sentence by itself: [G, n, D_h] to [G, n, D], in float32 or better.

    One product over the rows of all sentences would round a row differently with the number of rows
    around it; a product for each sentence does not. Autocast is followed, as by any linear layer.
    """
    if not isinstance(layer, nn.Linear):
        return layer(states)
    kind = states.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    else:
        dtype = torch.promote_types(
            torch.float32, torch.promote_types(states.dtype, layer.weight.dtype)
        )
    with torch.autocast(kind, enabled=False):
        product = _BySentence.apply(states.to(dtype), layer.weight.to(dtype))
        product = product.to(torch.promote_types(dtype, torch.float32))
        return product if layer.bias is None else product + layer.bias


class _BySentence(torch.autograd.Function):
    """X Wᵀ of each sentence; the weight's gradient is one product over all rows."""

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
