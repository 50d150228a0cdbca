"""The next word's distribution as a search sees it: never the whole table of rows by words."""

import copy
from collections.abc import Iterator

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
            offset = score - log_normaliser(raw).view_as(score)
            logits = self._allowed(raw, rows).view(len(score), width, -1)
            if penalised.shape[1]:
                words = penalised[start : start + step, None].expand(-1, width, -1)
                cost = penalty[start : start + step, None].expand_as(words)
                logits = logits.float().scatter_add(2, words, -cost)
            parts.append(_top(logits, offset, count))
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


def log_normaliser(logits: Tensor) -> Tensor:
    """What logits exceed log p by: log Σ exp over the words, `[R, V]` to `[R]`, float32.

    As max - log p(max), since `softmax` is one pass over a table that `logsumexp` writes thrice.
    """
    parts = (part.float() for part in logits.split(_WIDE_ROWS))
    return torch.cat([part.amax(-1) - part.softmax(-1).amax(-1).log() for part in parts])


def _top(logits: Tensor, offset: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` largest of logits + offset per group, exactly.

    The best `count` words lie in the best `count` blocks by block maximum, so only those blocks are
    searched: the sum over the whole table is never written.

    Args:
        logits: `[G, K, V]`.
        offset: `[G, K]`.
        count: how many.
    """
    groups, width, words = logits.shape
    if words % _BLOCK or width * words // _BLOCK < count:
        flat = (logits + offset[..., None]).flatten(1)
        if flat.shape[1] < count:  # a small vocabulary: what there is not is never chosen
            flat = F.pad(flat, (0, count - flat.shape[1]), value=-torch.inf)
        scores, places = flat.topk(count)
        places = places.where(places < width * words, 0)
        return scores, places // words, places % words
    blocks = words // _BLOCK
    tiled = logits.view(groups, width * blocks, _BLOCK)
    peaks = tiled.amax(-1) + offset.repeat_interleave(blocks, 1)
    chosen = peaks.topk(count).indices  # [G, count]
    found = tiled.gather(1, chosen[..., None].expand(-1, -1, _BLOCK))
    found = found + offset.gather(1, chosen // blocks)[..., None]
    scores, places = found.flatten(1).topk(count)
    block = chosen.gather(1, places // _BLOCK)
    return scores, block // blocks, block % blocks * _BLOCK + places % _BLOCK
