"""How different the outputs for one source are: distinct n-grams, uniqueness, compression.

All are means over sources. Counting over the whole corpus instead would measure its size and its
topics along with the generator, and could not be resampled: a corpus drawn with replacement has
fewer different n-grams for that reason alone.
"""

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..text import normal_form
from .metric import MeanMetric
from .ngrams import OUTPUT, WORDS, Floats, Outputs, Tokens


@dataclass(frozen=True)
class Distinct(MeanMetric):
    """Different n-grams by all n-grams of the outputs for a source.

    With n = 4 over 5 outputs it is Div-4 (Deshpande et al., 2019); distinct-n (Li et al., 2016) is
    the same over all outputs. Sources without any n-gram do not count.
    """

    name: str
    order: int
    tokens: Tokens = WORDS

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        return {"order": str(self.order), **self.tokens.signature}

    def values(self, outputs: Outputs) -> Floats:
        """The share of each source (B,)."""
        grams = outputs.ngrams(self.tokens, self.order)
        ours = outputs.role[grams.text] == OUTPUT
        # Outputs stand before other texts: they hold an n-gram if its first entry does.
        first = grams.starts[ours[grams.starts]]
        different = outputs.per_source(np.ones(len(first)), grams.text[first])
        total = outputs.per_source(grams.count[ours], grams.text[ours])
        with np.errstate(invalid="ignore"):
            return different / total


@dataclass(frozen=True)
class Unique(MeanMetric):
    """Different outputs by all outputs for a source (Deshpande et al., 2019)."""

    name: str = "unique"
    normalised: bool = False
    """Whether outputs that differ in case, punctuation and spacing only count as one."""

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        return {"norm": "case+punct+space" if self.normalised else "none"}

    def values(self, outputs: Outputs) -> Floats:
        """The share of each source (B,)."""
        groups: Iterable[Iterable[str]] = outputs.outputs
        if self.normalised:
            groups = (map(normal_form, texts) for texts in groups)
        different = [len(set(texts)) for texts in groups]
        return np.array(different) / [len(texts) for texts in outputs.outputs]


@dataclass(frozen=True)
class Compression(MeanMetric):
    """Bytes of the outputs for a source by their bytes after gzip; repetition compresses.

    As `compression_ratio` of the `diversity` package (Shaib et al., 2024), which compresses twice:
    the outputs joined by spaces, and the result again into a file with a named header.
    """

    name: str = "compression"
    higher_is_better = False

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        return {"algorithm": "gzip twice", "level": "9"}

    def values(self, outputs: Outputs) -> Floats:
        """The ratio of each source (B,)."""
        ratios = []
        for texts in outputs.outputs:
            plain = " ".join(texts).encode("utf-8", "surrogatepass")
            once = gzip.compress(plain, mtime=1)  # the same bytes at any time
            twice = zlib.compressobj(level=9, wbits=-zlib.MAX_WBITS)
            packed = len(twice.compress(once)) + len(twice.flush())
            ratios.append(len(plain) / (_HEADER + packed))
        return np.array(ratios)


_HEADER = 10 + len(b"compressed\0") + 8  # of a gzip file with its name, and its checksum and size
