"""The same network from fewer passes over memory: what training on a processor spends its time on.

What a T5 computes between its matrix products takes as long as the products themselves when each
elementary function is a pass of its own. Here are the same functions in one or two passes each.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_CHUNK = 128  # rows of the table in float32 at a time


def make_lean(network: nn.Module) -> None:
    """Exchange the modules of a network that have a faster equal; weights and names stay."""
    from transformers.activations import NewGELUActivation

    for parent in list(network.modules()):
        for name, module in list(parent.named_children()):
            if type(module) is NewGELUActivation:
                setattr(parent, name, nn.GELU(approximate="tanh"))
            elif type(module) is nn.Dropout:
                setattr(parent, name, Dropout(module.p).train(module.training))


class Dropout(nn.Dropout):
    """x ∘ m / (1 - p), with m = 0 with probability p to 16 bits.

    One random number of 64 bits decides about four elements; torch draws one for each, on one core.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Elements dropped in training; the input itself otherwise."""
        if not self.training or self.p == 0 or input.device.type != "cpu":
            return super().forward(input)
        numbers = torch.empty(-(-input.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        quarters = numbers.view(torch.int16)[: input.numel()].view(input.shape)
        keep = quarters >= round(self.p * 2**16) - 2**15
        return input * (keep.to(input.dtype) / (1 - self.p))


class VocabularyLoss(torch.autograd.Function):
    """-log softmax(X Wᵀ)[y] of each row, with no table of rows by words in float32.

    The forward pass turns logits into probabilities in their place and in X's format, some rows at
    a time in float32; the backward pass has their gradient from them, softmax - 1[y].

    Shapes: R rows, D dimensions, V words.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, words: Tensor) -> Tensor:
        """`[R, D]`, `[V, D]` and `[R]` to `[R]`."""
        table = states @ weight.t()  # [R, V]
        losses = []
        for rows, chosen in zip(table.split(_CHUNK), words.split(_CHUNK), strict=True):
            logits = rows.to(torch.promote_types(rows.dtype, torch.float32))
            p = logits.softmax(-1)
            # log Σ exp as max - log p(max): `exp` of what lies far below is slow, `softmax` is not.
            normaliser = logits.amax(-1) - p.amax(-1).log()
            losses.append(normaliser - logits.gather(1, chosen[:, None])[:, 0])
            rows.copy_(p)
        ctx.save_for_backward(states, weight, words, table)
        return torch.cat(losses)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """From `[R]` to `[R, D]` and `[V, D]`."""
        states, weight, words, p = ctx.saved_tensors
        table = p * gradient[:, None].to(p.dtype)
        table[torch.arange(len(words)), words] -= gradient.to(p.dtype)
        return table @ weight, table.t() @ states, None
