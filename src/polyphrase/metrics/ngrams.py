"""N-gram counts of everything that is said about one source, for all sources in one numpy pass.

Every metric on n-grams compares texts of the same source only: outputs with references, with each
other, or with the source. So the source, the words of an n-gram and the text it stands in are
packed into one whole number, and one sort brings equal n-grams of one source together. Time and
memory grow with the number of tokens (times its logarithm), never with the square of the number of
outputs.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput, MissingExtra

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
TokenizerName = Literal["whitespace", "13a", "characters"]

OUTPUT, REFERENCE, SOURCE = 0, 1, 2
"""What a text is to its source."""


@dataclass(frozen=True)
class Tokens:
    """The settings that turn a text into tokens."""

    tokenizer: TokenizerName = "whitespace"
    lowercase: bool = False

    @property
    def signature(self) -> dict[str, str]:
        """How this stands in a metric's signature."""
        return {"tok": self.tokenizer, "case": "lower" if self.lowercase else "mixed"}


WORDS = Tokens()
"""As the paper's scripts: what stands between whitespace, in its case."""


@dataclass(frozen=True)
class Ngrams:
    """The different n-grams of each text, those that are equal within a source side by side.

    The E entries stand in the order of their n-gram; entry e says that `text[e]` holds it
    `count[e]` times. N-gram g has the entries from `starts[g]` on.
    """

    text: Ints
    count: Ints
    starts: Ints

    @cached_property
    def gram(self) -> Ints:
        """The number of each entry's n-gram (E,)."""
        marks = np.zeros(len(self.text), dtype=np.int64)
        marks[self.starts[1:]] = 1
        return np.cumsum(marks)

    def most(self, chosen: NDArray[np.bool_]) -> Ints:
        """The largest count of each entry's n-gram among the chosen entries (E,), 0 without any."""
        if not len(self.text):
            return self.count
        return np.maximum.reduceat(np.where(chosen, self.count, 0), self.starts)[self.gram]

    def most_elsewhere(self, chosen: NDArray[np.bool_]) -> Ints:
        """For each chosen entry the largest count in the *other* chosen entries of its n-gram."""
        if not len(self.text):
            return self.count
        counts = np.where(chosen, self.count, 0)
        top = np.maximum.reduceat(counts, self.starts)  # of each n-gram
        is_top = counts == top[self.gram]
        alone = np.bincount(self.gram[is_top], minlength=len(top)) == 1
        below = np.flatnonzero(~is_top)  # few: most n-grams stand once wherever they stand
        second = np.zeros_like(top)
        np.maximum.at(second, self.gram[below], counts[below])
        return np.where(is_top, np.where(alone, second, top)[self.gram], top[self.gram])


class Outputs:
    """What a metric scores: the outputs for each source, its references and its own text if known.

    Tokens and n-grams are counted once and kept, so metrics that share this object share them.

    Args:
        outputs: for each of B sources its outputs.
        references: for each source its references.
        sources: the sources.
    """

    def __init__(
        self,
        outputs: Sequence[Sequence[str]],
        references: Sequence[Sequence[str]] | None = None,
        sources: Sequence[str] | None = None,
    ) -> None:
        for what, given in (("references", references), ("sources", sources)):
            if given is not None and len(given) != len(outputs):
                raise BadInput(f"{len(given)} {what} for {len(outputs)} sources with outputs")
        self.outputs, self.references, self.sources = outputs, references, sources
        self.count = sum(map(len, outputs))
        """How many of the texts are outputs."""
        self._tokens: dict[Tokens, tuple[Ints, Ints]] = {}
        self._ngrams: dict[tuple[Tokens, int], Ngrams] = {}

    def __len__(self) -> int:
        return len(self.outputs)

    @cached_property
    def texts(self) -> list[str]:
        """All texts: the outputs of all sources, then the references, then the sources."""
        parts = (self.outputs, self.references or [])
        texts = itertools.chain.from_iterable(itertools.chain.from_iterable(parts))
        return [*texts, *(self.sources or [])]

    @cached_property
    def group(self) -> Ints:
        """The source that each text belongs to."""
        return np.concatenate([np.repeat(np.arange(len(sizes)), sizes) for sizes in self._sizes])

    @cached_property
    def role(self) -> Ints:
        """What each text is to it."""
        return np.repeat([OUTPUT, REFERENCE, SOURCE], [sizes.sum() for sizes in self._sizes])

    @cached_property
    def _sizes(self) -> list[Ints]:
        """How many texts each source has of each role."""
        return [
            np.array(list(map(len, self.outputs)), dtype=np.int64),
            np.array(list(map(len, self.references or [])), dtype=np.int64),
            np.ones(len(self.sources or []), dtype=np.int64),
        ]

    def per_source(self, values: NDArray[np.generic], texts: Ints) -> Floats:
        """Sum values of texts over each source (B,)."""
        sums = np.bincount(self.group[texts], weights=values, minlength=len(self))
        return sums.astype(np.float64)

    def lengths(self, tokens: Tokens) -> Ints:
        """The number of tokens of each text."""
        return self._encoded(tokens)[1]

    def ngrams(self, tokens: Tokens, order: int) -> Ngrams:
        """The n-grams of one order of all texts."""
        key = (tokens, order)
        if key not in self._ngrams:
            self._ngrams[key] = self._count(tokens, order)
        return self._ngrams[key]

    def _encoded(self, tokens: Tokens) -> tuple[Ints, Ints]:
        if tokens not in self._tokens:
            self._tokens[tokens] = _encode(self.texts, tokens)
        return self._tokens[tokens]

    def _count(self, tokens: Tokens, order: int) -> Ngrams:
        ids, lengths = self._encoded(tokens)
        size = int(ids.max(initial=0)) + 1
        text = np.repeat(np.arange(len(lengths)), lengths)
        begins = np.flatnonzero(np.arange(len(text)) + order <= np.cumsum(lengths)[text])
        text = text[begins]
        grams = self.group[text] * size + ids[begins]
        for step in range(1, order):
            grams = _with_room(grams, size) * size + ids[begins + step]
        bits = len(lengths).bit_length()
        packed = np.sort(_with_room(grams, 1 << bits) << bits | text)
        entries = np.flatnonzero(_changes(packed))
        count = np.diff(entries, append=len(packed))
        packed = packed[entries]
        starts = np.flatnonzero(_changes(packed >> bits))
        return Ngrams(packed & ((1 << bits) - 1), count, starts)


_LARGEST = 2**63 - 1


def _with_room(values: Ints, factor: int) -> Ints:
    """The values, or small numbers in their place if a product with the factor might overflow."""
    if int(values.max(initial=0)) < _LARGEST // factor - 1:
        return values
    order = np.argsort(values)
    ranks = np.empty_like(values)
    ranks[order] = np.cumsum(_changes(values[order])) - 1
    return ranks


def _changes(values: Ints) -> NDArray[np.bool_]:
    """Where a value differs from the one before; the first does."""
    changes = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def _encode(texts: Sequence[str], tokens: Tokens) -> tuple[Ints, Ints]:
    """The tokens of all texts end to end as numbers, and how many each text has."""
    if tokens.lowercase:
        texts = [text.lower() for text in texts]
    if tokens.tokenizer == "characters":  # as chrF counts them: without whitespace
        bare = ["".join(text.split()) for text in texts]
        codes = np.frombuffer("".join(bare).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        return codes.astype(np.int64), np.array([len(text) for text in bare], dtype=np.int64)
    split = splitter(tokens.tokenizer)
    lengths: list[int] = []

    def rows() -> Iterator[list[str]]:  # one at a time: words that are gone soon stay in cache
        for text in texts:
            words = split(text)
            lengths.append(len(words))
            yield words

    number_of = defaultdict[str, int](itertools.count().__next__)  # in the order of first use
    numbers = map(number_of.__getitem__, itertools.chain.from_iterable(rows()))
    return np.fromiter(numbers, dtype=np.int64), np.array(lengths, dtype=np.int64)


def splitter(tokenizer: TokenizerName) -> Callable[[str], list[str]]:
    """What cuts a text into words."""
    if tokenizer == "whitespace":
        return str.split
    try:
        from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    except ImportError:
        raise MissingExtra("sacrebleu", "metrics") from None
    tokenize = Tokenizer13a()
    return lambda text: tokenize(text.rstrip()).split()
