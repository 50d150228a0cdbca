"""Linear layers between the encoder's size and the latent's."""

import torch
from torch import Tensor, nn


def projection(hidden_size: int, size: int) -> nn.Module:
    """The identity, or where the sizes differ a learned map that starts out orthogonal."""
    if size == hidden_size:
        return nn.Identity()
    layer = nn.Linear(hidden_size, size, bias=False)
    nn.init.orthogonal_(layer.weight)
    return layer


def apply(layer: nn.Module, states: Tensor) -> Tensor:
    """The layer at states in its own precision, or autocast's; in float32 or better afterwards."""
    weight = getattr(layer, "weight", states)
    output: Tensor = layer(states.to(weight.dtype))
    return output.to(torch.promote_types(output.dtype, torch.float32))
