"""METEOR (Lavie and Agarwal, 2007) by NLTK, with WordNet's synonyms or not at all.

A silent METEOR without synonyms is another metric, so a WordNet that cannot be found is an error.
"""

import functools
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import BadInput, MissingExtra
from .metric import MeanMetric
from .ngrams import WORDS, Floats, Outputs, Tokens, splitter

DEBIAN = Path("/usr/share/wordnet")
"""Where Debian's package `wordnet-base` puts WordNet's `dict` files."""

# The lexicographer files of WordNet 3.0, lexnames(5WN): Debian ships all but this list.
_LEXNAMES = """
adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body
noun.cognition noun.communication noun.event noun.feeling noun.food noun.group noun.location
noun.motive noun.object noun.person noun.phenomenon noun.plant noun.possession noun.process
noun.quantity noun.relation noun.shape noun.state noun.substance noun.time verb.body verb.change
verb.cognition verb.communication verb.competition verb.consumption verb.contact verb.creation
verb.emotion verb.motion verb.perception verb.possession verb.social verb.stative verb.weather
adj.ppl
"""


class _Lemma(NamedTuple):
    word: str

    def name(self) -> str:
        return self.word


class _Synset(NamedTuple):
    words: Sequence[_Lemma]

    def lemmas(self) -> Sequence[_Lemma]:
        return self.words


class WordNet:
    """The synonyms of words, looked up once each, in the shape in which NLTK's METEOR asks."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._known: dict[str, tuple[_Synset, ...]] = {}
        self.version: str = reader.get_version()

    def synsets(self, word: str) -> tuple[_Synset, ...]:
        """One set with all synonyms of a word that are one word themselves."""
        if word not in self._known:
            synsets = self._reader.synsets(word)
            names = {lemma.name() for synset in synsets for lemma in synset.lemmas()}
            self._known[word] = (_Synset([_Lemma(name) for name in names if "_" not in name]),)
        return self._known[word]


@dataclass(frozen=True)
class Meteor(MeanMetric):
    """The mean over the outputs of METEOR against the reference that it is best against.

    Words are matched in lower case: as they are, by their Porter stems, and as synonyms.
    """

    name: str = "meteor"
    tokens: Tokens = WORDS
    wordnet: str | None = None
    """A folder with WordNet's `dict` files; None for NLTK's data or Debian's package."""

    @property
    def signature(self) -> dict[str, str]:
        """The settings of the score."""
        return {
            "match": "exact+porter+wordnet",
            "wordnet": find_wordnet(self.wordnet).version,
            "params": "0.9,3,0.5",
            "tok": self.tokens.tokenizer,
            "case": "lower",
        }

    def values(self, outputs: Outputs) -> Floats:
        """The mean METEOR of each source's outputs (B,)."""
        wordnet = find_wordnet(self.wordnet)
        from nltk.stem import PorterStemmer
        from nltk.translate.meteor_score import meteor_score

        stemmer = PorterStemmer()
        stemmer.stem = functools.cache(stemmer.stem)
        split = splitter(self.tokens.tokenizer)
        means = []
        for texts, references in zip(outputs.outputs, outputs.references or [], strict=True):
            held = [split(reference) for reference in references]
            scores = [
                meteor_score(held, split(text), stemmer=stemmer, wordnet=wordnet) for text in texts
            ]
            means.append(np.mean(scores))
        return np.array(means)


@functools.cache
def find_wordnet(folder: str | None = None) -> WordNet:
    """WordNet from a folder, from NLTK's data (fetched if it can be), or from Debian's package.

    Raises:
        BadInput: when none of the three is there.
    """
    try:
        import nltk
    except ImportError:
        raise MissingExtra("nltk", "metrics") from None
    if folder is not None:
        return _read_wordnet(Path(folder))
    if _nltk_has_wordnet(nltk):
        return WordNet(nltk.corpus.wordnet)
    if DEBIAN.is_dir():
        return _read_wordnet(DEBIAN)
    fetched = nltk.download("wordnet", quiet=True, print_error_to=io.StringIO())
    if fetched and _nltk_has_wordnet(nltk):
        return WordNet(nltk.corpus.wordnet)
    raise BadInput(
        "METEOR needs WordNet: run python -m nltk.downloader wordnet, or apt-get install "
        "wordnet-base, or name a folder with WordNet's dict files with --wordnet"
    )


def _nltk_has_wordnet(nltk: Any) -> bool:
    try:
        nltk.corpus.wordnet.ensure_loaded()
    except LookupError:
        return False
    return True


def _read_wordnet(folder: Path) -> WordNet:
    import nltk
    from nltk.corpus import WordNetCorpusReader

    class Reader(WordNetCorpusReader):
        def open(self, file: str) -> Any:
            if file == "lexnames" and not (folder / file).exists():
                lines = (f"{number}\t{name}\t0" for number, name in enumerate(_LEXNAMES.split()))
                return io.StringIO("\n".join(lines))
            return super().open(file)

        def map_wn(self, version: str = "wordnet") -> None:
            """No map to the synsets of other languages, which would need NLTK's own WordNet."""

    for name in ("data.noun", "index.noun", "noun.exc"):
        if not (folder / name).is_file():
            raise BadInput(f"{folder} holds no {name}; give the folder with WordNet's dict files")
    # NLTK reads nothing outside its data path; a folder that was asked for is meant to be read.
    root = str(folder.resolve())
    if root not in nltk.data.path:
        nltk.data.path.append(root)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The multilingual functions are not available")
        return WordNet(Reader(root, None))
