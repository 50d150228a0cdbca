"""The next word's distribution as a search sees it: never the whole table of rows by words."""

import copy
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..backbones.executor import Executor, Rules

_ROWS = 160  # rows of logits held at a time: few enough to stay in cache, enough to fill products
_WIDE_ROWS = 16  # of these, rows in float32 at a time: the cache nearest to the processor is small
_BLOCK = 128  # words in a block of `_top`


class NextWords:
    """p(y_t | y_<t) of the rows of one step.

    Args:
        executor: turns features into logits.
        features: `[R, F]`, from `Executor.step`.
        rules: what may be said.
        position: t, from 0.
        min_length: no end before this many words.
        max_length: the end at this many words at the latest.
        repeats: words that would repeat an n-gram, and where there are any: see `repetitions`.
    """

    def __init__(
        self,
        executor: Executor,
        features: Tensor,
        rules: Rules,
        position: int,
        min_length: int,
        max_length: int,
        repeats: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self._repeats = repeats
        self._executor = executor
        self._features = features
        self._forbidden = [*rules.forbidden, *([rules.end] if position < min_length else [])]
        self._only: int | None = None
        if position == 0 and rules.first is not None:
            self._only = rules.first
        elif position == max_length - 1 and rules.last is not None:
            self._only = rules.last

    def of_rows(self, rows: Tensor) -> "NextWords":
        """The same step for some of its rows."""
        part = copy.copy(self)
        part._features = self._features[rows]
        if self._repeats is not None:
            part._repeats = (self._repeats[0][rows], self._repeats[1][rows])
        return part

    def logits(self, rows: slice = slice(None)) -> Tensor:
        """Logits with the forbidden words at -inf, float32, `[R, V]`."""
        return self._allowed(self._table(rows).float(), rows)

    def _table(self, rows: slice) -> Tensor:
        """The decoder's logits in its own format, if that is no longer than a score's."""
        logits = self._executor.logits(self._features[rows])
        return logits.float() if logits.dtype == torch.float64 else logits

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """The logits some rows at a time."""
        for start in range(0, len(self._features), _ROWS):
            rows = slice(start, start + _ROWS)
            yield rows, self.logits(rows)

    def top(
        self, running: Tensor, count: int, penalised: Tensor, penalty: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of groups of hypotheses: running score + log p(word).

        Args:
            running: log-probabilities so far, `[G, K]`, whose `G * K` rows are this step's rows.
            count: how many continuations per group.
            penalised: words that cost something each time they stand here, `[G, P]`.
            penalty: what, in nats, `[G, P]`.

        Returns:
            Scores, which of the K hypotheses, and words; each `[G, count]`, best first.
        """
        groups, width = running.shape
        step = max(1, _ROWS // width)
        parts = []
        for start in range(0, groups, step):
            score = running[start : start + step]
            rows = slice(start * width, (start + step) * width)
            raw = self._table(rows)
            # Families differ in what they forbid, not in what they normalise: as `generate` does,
            # log p is taken over all words first.
            normaliser, peaks = _summary(raw, self._forbidden)
            offset = score - normaliser.view_as(score)
            table = raw.view(len(score), width, -1)
            if self._only is None and self._repeats is None and not penalised.shape[1]:
                parts.append(_top(table, offset, count, peaks, self._forbidden))
                continue
            table = self._allowed(raw.float(), rows).view_as(table)
            if penalised.shape[1]:
                words = penalised[start : start + step, None].expand(-1, width, -1)
                cost = penalty[start : start + step, None].expand_as(words)
                table = table.scatter_add(2, words, -cost)
            parts.append(_top(table, offset, count))
        scores, hypotheses, words = (torch.cat(part) for part in zip(*parts, strict=True))
        return scores, hypotheses, words

    def _allowed(self, logits: Tensor, rows: slice) -> Tensor:
        if self._only is not None:  # a forced word has probability 1
            certain = torch.full_like(logits, -torch.inf)
            certain[:, self._only] = logits.logsumexp(-1)
            return certain
        if self._forbidden:
            forbidden = torch.tensor(self._forbidden, device=logits.device)
            logits = logits.index_fill(1, forbidden, -torch.inf)
        if self._repeats is not None:
            words, cost = (part[rows] for part in self._repeats)
            logits = logits.scatter_add(1, words, cost.to(logits.dtype))
        return logits


def repetitions(prefix: Tensor, size: int) -> tuple[Tensor, Tensor] | None:
    """The words that would end an n-gram that a prefix holds already.

    Args:
        prefix: words so far, `[R, T]`.
        size: n.

    Returns:
        Words that may repeat one and their cost, 0 or -inf, both `[R, T - n + 1]`; `None` while the
        prefix is too short to hold one.
    """
    if prefix.shape[1] < size:
        return None
    held = prefix.unfold(1, size, 1)  # [R, T - n + 1, n]
    last = prefix[:, prefix.shape[1] - size + 1 :]
    same = (held[..., :-1] == last[:, None]).all(-1)
    return held[..., -1], torch.where(same, -torch.inf, 0.0)


def _summary(logits: Tensor, forbidden: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """What a search asks of a whole table: one pass over a few rows at a time, near the processor.

    Args:
        logits: `[R, V]`.
        forbidden: words that are not chosen.

    Returns:
        What logits exceed log p by, log Σ exp over all words, `[R]`, as max - log p(max): `softmax`
        is one pass over a table that `logsumexp` writes thrice. And the largest logit that is not
        forbidden of each block of words, `[R, V / _BLOCK]`, if the vocabulary divides into blocks.
        Both float32.
    """
    blocks = logits.shape[1] // _BLOCK if logits.shape[1] % _BLOCK == 0 else 0
    never = torch.tensor(forbidden, dtype=torch.long, device=logits.device)
    normalisers, peaks = [], []
    for part in logits.split(_WIDE_ROWS):
        wide = part.to(torch.float32, copy=True)
        normalisers.append(wide.amax(-1) - wide.softmax(-1).amax(-1).log())
        if blocks:
            wide.index_fill_(1, never, -torch.inf)
            peaks.append(wide.view(-1, blocks, _BLOCK).amax(-1))
    return torch.cat(normalisers), torch.cat(peaks) if blocks else None


def _top(
    logits: Tensor,
    offset: Tensor,
    count: int,
    peaks: Tensor | None = None,
    forbidden: Sequence[int] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` largest of logits + offset per group, exactly.

    The best `count` words lie in the best `count` blocks by block maximum, so only those blocks are
    searched: the sum over the whole table is never written.

    Args:
        logits: `[G, K, V]`.
        offset: `[G, K]`.
        count: how many.
        peaks: the largest logit of each block, `[G * K, V / _BLOCK]`, without the forbidden words.
        forbidden: words that are not chosen.
    """
    groups, width, words = logits.shape
    never = torch.tensor(forbidden, dtype=torch.long, device=logits.device)
    if words % _BLOCK or width * words // _BLOCK < count:
        flat = (logits.index_fill(2, never, -torch.inf) + offset[..., None]).flatten(1)
        if flat.shape[1] < count:  # a small vocabulary: what there is not is never chosen
            flat = F.pad(flat, (0, count - flat.shape[1]), value=-torch.inf)
        scores, places = flat.topk(count)
        places = places.where(places < width * words, 0)
        return scores, places // words, places % words
    blocks = words // _BLOCK
    tiled = logits.view(groups, width * blocks, _BLOCK)
    peaks = tiled.amax(-1) if peaks is None else peaks.view(groups, -1)
    chosen = (peaks + offset.repeat_interleave(blocks, 1)).topk(count).indices  # [G, count]
    found = tiled.gather(1, chosen[..., None].expand(-1, -1, _BLOCK))
    found = found + offset.gather(1, chosen // blocks)[..., None]
    block = chosen % blocks
    for word in forbidden:
        found[..., word % _BLOCK].masked_fill_(block == word // _BLOCK, -torch.inf)
    scores, places = found.flatten(1).topk(count)
    return (
        scores,
        chosen.gather(1, places // _BLOCK) // blocks,
        block.gather(1, places // _BLOCK) * _BLOCK + places % _BLOCK,
    )
