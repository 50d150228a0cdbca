"""Sentences of unequal length as dense blocks: padding never enters the mathematics."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import BadInput

MATRIX_ELEMENTS = 2**18
"""The most elements of a block's [G, n, n] matrices, unless one sentence has more."""
STATE_ELEMENTS = 2**20
"""The most elements of a block's [G, n, D] states, unless one sentence has more."""


class Ragged:
    """The real positions of a batch, as blocks of sentences that have the same length.

    A formula that sees only blocks needs no mask, so a sentence's numbers depend neither on its
    padding, wherever that is, nor on the other sentences of its batch. To the last bit, too, where
    each sentence is a block of its own in memory of its own: the libraries beneath round
    differently with the number of rows and with where in memory they start.

    Shapes: B sentences, N padded positions, G sentences of a block, n their length, D dimensions.
    """

    def __init__(self, mask: Tensor, width: int, *, exact: bool = False) -> None:
        """Read the lengths.

        Args:
            mask: [B, N], true or 1 at real positions.
            width: the number of dimensions that the blocks will carry, to bound their size.
            exact: whether each sentence is a block of its own.
        """
        mask = mask.bool()
        lengths: list[int] = mask.sum(1).tolist()
        order = sorted((k for k, n in enumerate(lengths) if n), key=lengths.__getitem__)
        if not order:
            raise BadInput("the mask leaves no position of any sentence: give it one at least")
        self.shape = mask.shape
        self.sizes: list[tuple[int, int]] = []
        """G and n of each block."""
        for n, sentences in groupby(order, key=lengths.__getitem__):
            count = len(list(sentences))
            most = max(1, min(MATRIX_ELEMENTS // n**2, STATE_ELEMENTS // (n * width)))
            most = 1 if exact else most
            self.sizes += [(min(most, count - start), n) for start in range(0, count, most)]
        self._exact = exact
        self._sentences = torch.tensor(order, device=mask.device)
        self._rows: Tensor | None = None
        if sum(lengths) < mask.numel():
            flat = torch.arange(mask.numel(), device=mask.device).view(self.shape)
            self._rows = flat[self._sentences][mask[self._sentences]]

    def split(self, padded: Tensor) -> list[Tensor]:
        """[..., B, N, D] to one [..., G, n, D] per block."""
        rows = padded.flatten(-3, -2)
        if self._rows is not None:
            rows = _TakeRows.apply(rows, self._rows)
        parts = rows.split([count * n for count, n in self.sizes], dim=-2)
        blocks = [part.unflatten(-2, size) for part, size in zip(parts, self.sizes, strict=True)]
        return [_Copy.apply(block) for block in blocks] if self._exact else blocks

    def join(self, blocks: Sequence[Tensor]) -> Tensor:
        """One [..., G, n, D] per block to [..., B, N, D], zero where there is padding."""
        blocks = [_Copy.apply(block) for block in blocks] if self._exact else blocks
        rows = torch.cat([block.flatten(-3, -2) for block in blocks], dim=-2)
        if self._rows is not None:
            padded = rows.new_zeros(*rows.shape[:-2], self.shape.numel(), rows.shape[-1])
            rows = padded.index_copy(-2, self._rows, rows)
        return rows.unflatten(-2, self.shape)

    def join_sentences(self, values: Sequence[Tensor]) -> Tensor:
        """One [G] per block to [B], zero where a sentence has no position."""
        joined = torch.cat(list(values))
        return joined.new_zeros(self.shape[0]).index_copy(0, self._sentences, joined)


class _TakeRows(torch.autograd.Function):
    """Distinct rows of a matrix; the backward of `index_select` adds rows and is far slower."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape = rows.shape
        return rows.index_select(-2, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.shape).index_copy_(-2, index, gradient), None


class _Copy(torch.autograd.Function):
    """The same values in memory of their own, forwards and backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone(memory_format=torch.contiguous_format)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.clone(memory_format=torch.contiguous_format)
