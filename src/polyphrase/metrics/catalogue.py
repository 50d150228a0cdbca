"""All metrics by name: which outputs each looks at, what it needs, how it is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from .bleu import Bleu, IBleu, MeanBleu, SelfBleu
from .chrf import ChrF
from .copying import Copies, Overlap
from .diversity import Compression, Distinct, Unique
from .meteor import Meteor
from .metric import Metric
from .ngrams import WORDS, Tokens
from .semantic import EMBEDDER, LANGUAGE_MODEL, Meaning, Perplexity

View = Literal["best", "samples", "subset"]
"""The one output per source that stands for quality, all samples, or those drawn from them."""


@dataclass(frozen=True)
class Settings:
    """What the metrics can be told; the defaults are the paper's text."""

    order: int = 2
    """N-gram order of BLEU and self-BLEU."""
    tokens: Tokens = WORDS
    wordnet: str | None = None
    """Folder of WordNet for METEOR."""
    embedder: str = EMBEDDER
    language_model: str = LANGUAGE_MODEL


@dataclass(frozen=True)
class Entry:
    """A metric of the catalogue."""

    title: str
    view: View
    make: Callable[[Settings], Metric]
    needs: frozenset[Literal["references", "sources"]] = frozenset()
    default: bool = True
    """Whether it is computed unless asked otherwise: not with a neural model, nor a variant."""


_REFERENCES: frozenset[Literal["references", "sources"]] = frozenset({"references"})
_SOURCES: frozenset[Literal["references", "sources"]] = frozenset({"sources"})

CATALOGUE: Mapping[str, Entry] = {
    "bleu": Entry("BLEU", "best", lambda s: Bleu(order=s.order, tokens=s.tokens), _REFERENCES),
    "bleu-lower": Entry(
        "BLEU, lower case",
        "best",
        lambda s: Bleu("bleu-lower", s.order, Tokens(s.tokens.tokenizer, lowercase=True)),
        _REFERENCES,
    ),
    "sacrebleu": Entry(
        "sacreBLEU",
        "best",
        lambda s: Bleu("sacrebleu", 4, Tokens("13a", s.tokens.lowercase), "exp"),
        _REFERENCES,
    ),
    "meteor": Entry(
        "METEOR", "best", lambda s: Meteor(tokens=s.tokens, wordnet=s.wordnet), _REFERENCES
    ),
    "chrf": Entry("chrF", "best", lambda s: ChrF(lowercase=s.tokens.lowercase), _REFERENCES),
    "ibleu": Entry(
        "iBLEU",
        "best",
        lambda s: IBleu(Bleu(order=s.order, tokens=s.tokens)),
        _REFERENCES | _SOURCES,
    ),
    "copies": Entry("copies", "best", lambda s: Copies(), _SOURCES),
    "copies-normal": Entry(
        "copies, normalised", "best", lambda s: Copies("copies-normal", normalised=True), _SOURCES
    ),
    "overlap": Entry("source overlap", "best", lambda s: Overlap(tokens=s.tokens), _SOURCES),
    "meaning": Entry(
        "meaning", "best", lambda s: Meaning(model=s.embedder), _SOURCES, default=False
    ),
    "perplexity": Entry(
        "perplexity", "best", lambda s: Perplexity(model=s.language_model), default=False
    ),
    "avg-bleu": Entry(
        "avg-BLEU", "samples", lambda s: Bleu("avg-bleu", s.order, s.tokens), _REFERENCES
    ),
    "avg-meaning": Entry(
        "avg-meaning",
        "samples",
        lambda s: Meaning("avg-meaning", s.embedder),
        _SOURCES,
        default=False,
    ),
    "self-bleu": Entry("self-BLEU", "subset", lambda s: SelfBleu(order=s.order, tokens=s.tokens)),
    "self-bleu-mean": Entry(
        "self-BLEU, mean",
        "subset",
        lambda s: MeanBleu(SelfBleu(order=s.order, tokens=s.tokens), "self-bleu-mean"),
        default=False,
    ),
    "div-4": Entry("Div-4", "subset", lambda s: Distinct("div-4", 4, s.tokens)),
    "unique": Entry("unique", "samples", lambda s: Unique()),
    "unique-normal": Entry(
        "unique, normalised", "samples", lambda s: Unique("unique-normal", normalised=True)
    ),
    "distinct-1": Entry("distinct-1", "samples", lambda s: Distinct("distinct-1", 1, s.tokens)),
    "distinct-2": Entry("distinct-2", "samples", lambda s: Distinct("distinct-2", 2, s.tokens)),
    "compression": Entry("compression ratio", "samples", lambda s: Compression()),
}
