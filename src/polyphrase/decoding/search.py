"""The one search loop, and the two ways to choose words in it."""

from typing import Protocol

import torch
from torch import Tensor

from ..backbones.executor import Executor, Rules
from .hypotheses import Hypotheses
from .settings import Search
from .words import NextWords, repetitions

_NEVER = -1e9  # a score below any hypothesis, above that of one that cannot be


class Chooser(Protocol):
    """The state of a search between two steps."""

    def choose(self, words: NextWords, position: int) -> tuple[Tensor, Tensor]:
        """Choose from this step's distributions.

        Returns:
            The tokens to read next and the row of this step that each continues, both `[R]`;
            empty when every search has ended.
        """

    def prefixes(self, position: int) -> Tensor:
        """The words that each row of this step has so far, `[R, position]`."""

    def finished(self) -> Hypotheses:
        """What was found."""


def run_search(
    executor: Executor,
    rows: int,
    search: Search,
    rules: Rules,
    start: int,
    pad: int,
    device: torch.device,
    uniforms: Tensor | None = None,
) -> Hypotheses:
    """Search over each row of the executor's memory.

    Args:
        executor: the decoder over a memory of `rows` rows.
        rows: R.
        search: which search.
        rules: what the system may say.
        start: the token that the decoder reads first.
        pad: the token after the end.
        device: where the executor computes.
        uniforms: numbers in [0, 1), `[R, max_length]`, for a stochastic search.
    """
    chooser: Chooser
    if search.method in ("beam", "diverse-beam"):
        chooser = Beams(rows, search, rules.end, pad, device)
    else:
        chooser = Draws(rows, search, rules.end, pad, device, uniforms)
    tokens, parents = torch.full((rows,), start, device=device), None
    for position in range(search.max_length):
        features = executor.step(tokens, parents)
        repeats = None
        if search.no_repeat_ngram:
            repeats = repetitions(chooser.prefixes(position), search.no_repeat_ngram)
        words = NextWords(
            executor, features, rules, position, search.min_length, search.max_length, repeats
        )
        tokens, parents = chooser.choose(words, position)
        if not len(tokens):
            break
    return chooser.finished()


class Draws:
    """One hypothesis per row: the likeliest word at each step, or one drawn.

    A word is drawn by inverting the distribution function at a given uniform number, so what a row
    draws depends on its own numbers only, never on its company in the batch.
    """

    def __init__(
        self,
        rows: int,
        search: Search,
        end: int,
        pad: int,
        device: torch.device,
        uniforms: Tensor | None,
    ) -> None:
        if search.stochastic and uniforms is None:
            raise TypeError("a stochastic search needs its uniform numbers")
        self._search = search
        self._end = end
        self._uniforms = uniforms
        self._live = torch.arange(rows, device=device)
        self._tokens = torch.full((rows, search.max_length), pad, device=device)
        self._log_probability = torch.zeros(rows, device=device)
        self._length = torch.zeros(rows, device=device)

    def choose(self, words: NextWords, position: int) -> tuple[Tensor, Tensor]:
        """Choose one word per live row: see `Chooser.choose`."""
        chosen, log_p = [], []
        for rows, logits in words.chunks():
            if self._uniforms is None or not self._search.stochastic:
                word = logits.argmax(-1)
            else:
                uniform = self._uniforms[self._live[rows], position]
                word = draw(logits, uniform, self._search)
            chosen.append(word)
            log_p.append(logits.gather(1, word[:, None])[:, 0] - logits.logsumexp(-1))
        tokens = torch.cat(chosen)
        self._tokens[self._live, position] = tokens
        self._log_probability[self._live] += torch.cat(log_p)
        self._length[self._live] += 1
        open_rows = (tokens != self._end).nonzero()[:, 0]
        self._live = self._live[open_rows]
        return tokens[open_rows], open_rows

    def prefixes(self, position: int) -> Tensor:
        """The words of the live rows: see `Chooser.prefixes`."""
        return self._tokens[self._live, :position]

    def finished(self) -> Hypotheses:
        """The one hypothesis of each row."""
        score = self._log_probability / self._length**self._search.length_penalty
        return Hypotheses(self._tokens[:, None], self._log_probability[:, None], score[:, None])


def draw(logits: Tensor, uniform: Tensor, search: Search) -> Tensor:
    """One word per row from softmax(logits / temperature), cut by `top_k` and `top_p`.

    Args:
        logits: `[R, V]`.
        uniform: numbers in [0, 1), `[R]`.
        search: temperature, top_k and top_p.
    """
    p = torch.softmax(logits / search.temperature, -1)
    if search.top_k or search.top_p < 1:
        p, order = _likeliest(p, search)
    else:
        order = None
    mass = p.cumsum(-1, dtype=torch.float64)
    place = torch.searchsorted(mass, uniform.to(torch.float64)[:, None] * mass[:, -1:], right=True)
    place = place.clamp(max=p.shape[1] - 1)
    return (place if order is None else order.gather(1, place))[:, 0]


def _likeliest(p: Tensor, search: Search) -> tuple[Tensor, Tensor]:
    """The words that may be drawn, likeliest first, the others' probability set to 0."""
    words = p.shape[1]
    count = min(search.top_k or words, words)
    if search.top_p < 1 and not search.top_k:
        # A nucleus is small: sort a part, and all of it only when some row needs more.
        count = min(1024, words)
        if bool((p.topk(count).values.sum(-1) < search.top_p).any()):
            count = words
    p, order = p.topk(count)
    if search.top_p < 1:
        before = p.cumsum(-1) - p
        held = p.sum(-1, keepdim=True) if search.top_k else 1.0  # top_k renormalises, then top_p
        p = torch.where(before < search.top_p * held, p, 0.0)
    return p, order


class Beams:
    """Beam search with finished hypotheses kept apart, as `transformers.generate` defines it.

    A source has G groups of K beams, each group a search of its own; plain beam search is G = 1.
    With more groups, a word costs `diversity` for every beam of an earlier group that chose it at
    this step (Hamming diversity, Vijayakumar et al. 2016).

    A group ends when its best open beam, at its present length, cannot beat the worst of its K
    finished hypotheses; a source leaves the batch when its groups have ended.
    """

    def __init__(self, rows: int, search: Search, end: int, pad: int, device: torch.device) -> None:
        self._search = search
        self._end = end
        groups = search.groups if search.method == "diverse-beam" else 1
        shape = (rows, groups, search.beams // groups)
        length = search.max_length
        self._live = torch.arange(rows, device=device)
        # Open beams of the live sources. Before the first step each group has one: the start.
        self._running = torch.zeros(rows, groups, 1, device=device)
        self._prefix = torch.full((rows, groups, 1, length), pad, device=device)
        self._paid = torch.zeros(rows, groups, 1, device=device)  # for words of earlier groups
        self._open = torch.ones(rows, groups, dtype=torch.bool, device=device)
        # Finished hypotheses of all sources, best first in each group.
        self._score = torch.full(shape, _NEVER, device=device)
        self._log_probability = torch.full(shape, -torch.inf, device=device)
        self._tokens = torch.full((*shape, length), pad, device=device)

    def choose(self, words: NextWords, position: int) -> tuple[Tensor, Tensor]:
        """Extend every open beam by one word: see `Chooser.choose`."""
        sources, groups, width = self._running.shape
        if position == 0:  # the groups share the one row of their source
            rows = torch.arange(sources, device=self._live.device)[:, None, None]
            rows = rows.expand(sources, groups, 1)
        else:
            rows = torch.arange(sources * groups * width, device=self._live.device)
            rows = rows.view(sources, groups, width)
        kept = []
        # What earlier groups chose at this step, and what each of these words costs; a group that
        # has ended says nothing.
        said = torch.empty(sources, 0, dtype=torch.long, device=self._live.device)
        cost = self._running.new_empty(sources, 0)
        for group in range(groups):
            part = words if groups == 1 else words.of_rows(rows[:, group].flatten())
            score, beam, word = part.top(
                self._running[:, group], 2 * self._score.shape[-1], said, cost
            )
            paid = self._paid[:, group].gather(1, beam)
            paid = paid + ((word[..., None] == said[:, None]) * cost[:, None]).sum(-1)
            kept.append(self._extend(group, position, score, beam, word, paid))
            chosen = kept[-1][2]
            said = torch.cat([said, chosen], 1)
            price = self._search.diversity * self._open[:, group, None]
            cost = torch.cat([cost, price.expand_as(chosen)], 1)
        score, beam, word, prefix, paid = (
            torch.stack([group[part] for group in kept], 1) for part in range(5)
        )
        parents = rows.gather(2, beam)
        self._running, self._prefix, self._paid = score, prefix, paid
        self._close(position)
        return self._continue(word, parents, last=position + 1 == self._search.max_length)

    def _extend(
        self, group: int, position: int, score: Tensor, beam: Tensor, word: Tensor, paid: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Sort one group's 2K candidates into K open beams and those that end here.

        Returns:
            Score, parent beam, word `[S, K]`, prefix `[S, K, T]` and what was paid `[S, K]` of the
            open beams.
        """
        beams = self._score.shape[-1]
        prefix = _take(self._prefix[:, group], beam)
        prefix[:, :, position] = word
        ends = word == self._end
        running, keep = torch.where(ends, -torch.inf, score).topk(beams)
        if position + 1 == self._search.max_length:
            ends = torch.ones_like(ends)
        # Only an ending among the K best candidates is a finished hypothesis.
        admitted = ends & self._open[:, group, None]
        admitted[:, beams:] = False
        length = (position + 1) ** self._search.length_penalty
        normalised = torch.where(admitted, score / length, _NEVER)
        best, order = torch.cat([self._score[self._live, group], normalised], 1).topk(beams)
        self._score[self._live, group] = best
        self._log_probability[self._live, group] = torch.cat(
            [self._log_probability[self._live, group], score + paid], 1
        ).gather(1, order)
        self._tokens[self._live, group] = _take(
            torch.cat([self._tokens[self._live, group], prefix], 1), order
        )
        beam, word, paid = (tensor.gather(1, keep) for tensor in (beam, word, paid))
        return running, beam, word, _take(prefix, keep), paid

    def _close(self, position: int) -> None:
        hope = self._running[..., 0] / (position + 1) ** self._search.length_penalty
        self._open &= hope > self._score[self._live].amin(-1)

    def _continue(self, word: Tensor, parents: Tensor, last: bool) -> tuple[Tensor, Tensor]:
        open_sources = self._open.any(-1)
        ended = int((~open_sources).sum())
        if last or ended == len(open_sources):
            nothing = torch.empty(0, dtype=torch.long, device=word.device)
            return nothing, nothing
        # Leaving costs a copy of what stays, so it waits until enough can leave at once.
        if ended >= 0.15 * len(open_sources):
            stay = open_sources.nonzero()[:, 0]
            self._live, self._running, self._prefix, self._paid, self._open, word, parents = (
                tensor[stay]
                for tensor in (
                    self._live,
                    self._running,
                    self._prefix,
                    self._paid,
                    self._open,
                    word,
                    parents,
                )
            )
        return word.flatten(), parents.flatten()

    def prefixes(self, position: int) -> Tensor:
        """The words of the open beams: see `Chooser.prefixes`."""
        return self._prefix[..., :position].flatten(0, 2)

    def finished(self) -> Hypotheses:
        """The hypotheses of each source: the best of each group, then the second best, ..."""
        found = self._score > _NEVER
        score = torch.where(found, self._score, -torch.inf)
        by_rank = (
            tensor.transpose(1, 2).flatten(1, 2)
            for tensor in (self._tokens, self._log_probability, score)
        )
        return Hypotheses(*by_rank)


def _take(sequences: Tensor, rows: Tensor) -> Tensor:
    """`sequences[s, rows[s, k]]`: `[S, K, T]` and `[S, K']` to `[S, K', T]`."""
    return sequences.gather(1, rows[..., None].expand(-1, -1, sequences.shape[-1]))
