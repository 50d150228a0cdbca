"""Sentences of unequal length as dense blocks: padding never enters the mathematics."""

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

MATRIX_ELEMENTS = 2**18
"""The most elements of a block's [G, n, n] matrices, unless one sentence has more."""
STATE_ELEMENTS = 2**20
"""The most elements of a block's [G, n, D] states, unless one sentence has more."""


class Ragged:
    """The real positions of a batch, as blocks of sentences that have the same length.

    A formula that sees only blocks needs no mask, so a sentence's numbers do not depend on its
    padding (at any place) nor on the other sentences of its batch.

    Shapes: B sentences, N padded positions, G sentences of a block, n their length, D dimensions.
    """

    def __init__(self, mask: Tensor, width: int) -> None:
        """Read the lengths.

        Args:
            mask: [B, N], true or 1 at real positions.
            width: the number of dimensions that the blocks will carry, to bound their size.
        """
        mask = mask.bool()
        self.shape = mask.shape
        lengths: list[int] = mask.sum(1).tolist()
        order = sorted(range(len(lengths)), key=lengths.__getitem__)  # a stable sort
        self.sizes: list[tuple[int, int]] = []
        for n, sentences in groupby(order, key=lengths.__getitem__):
            count = len(list(sentences))
            most = max(
                1, min(MATRIX_ELEMENTS // max(1, n * n), STATE_ELEMENTS // max(1, n * width))
            )
            starts = range(0, count, most)
            self.sizes += [(min(most, count - start), n) for start in starts if n]
        empty = lengths.count(0)
        dense = min(lengths, default=0) == mask.shape[1]
        device = mask.device
        self._sentences = torch.tensor(order[empty:], dtype=torch.long, device=device)
        self._rows: Tensor | None = None
        if not dense:
            flat = torch.arange(mask.numel(), device=device).view(self.shape)[self._sentences]
            self._rows = flat[mask[self._sentences]]

    def split(self, padded: Tensor) -> list[Tensor]:
        """[..., B, N, D] to one [..., G, n, D] per block."""
        rows = padded.flatten(-3, -2)
        if self._rows is not None:
            rows = _TakeRows.apply(rows, self._rows)
        parts = rows.split([count * n for count, n in self.sizes], dim=-2)
        return [part.unflatten(-2, size) for part, size in zip(parts, self.sizes, strict=True)]

    def join(self, blocks: Sequence[Tensor]) -> Tensor:
        """One [..., G, n, D] per block to [..., B, N, D], zero where there is padding."""
        rows = torch.cat([block.flatten(-3, -2) for block in blocks], dim=-2)
        if self._rows is not None:
            padded = rows.new_zeros(*rows.shape[:-2], self.shape.numel(), rows.shape[-1])
            rows = padded.index_copy(-2, self._rows, rows)
        return rows.unflatten(-2, self.shape)

    def join_sentences(self, values: Sequence[Tensor]) -> Tensor:
        """One [G] per block to [B], zero where a sentence has no position."""
        joined = torch.cat(list(values))
        return joined.new_zeros(self.shape[0]).index_copy(0, self._sentences, joined)

    def sentence(self, index: int) -> tuple[int, int]:
        """The block of a sentence of the batch and its place there."""
        place = self._sentences.tolist().index(index)
        ends = list(accumulate(count for count, _ in self.sizes))
        block = next(k for k, end in enumerate(ends) if place < end)
        return block, place - (ends[block] - self.sizes[block][0])


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
