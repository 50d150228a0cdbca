"""The paper's corpora by name, each brought into one folder of `train`, `validation` and `test`.

* `twitter-url` (Lan et al., 2017): the split that the paper's authors published, or one cut anew
  from the raw candidates with their annotators' votes.
* `gyafc-em`, `gyafc-fr` (Rao and Tetreault, 2018): informal to formal, from the folder that a
  licence holder has; four references per source in validation and test.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadInput
from .download import download
from .readers import Example, read_lines, write_examples

AUTHORS = (
    "https://raw.githubusercontent.com/wyu-du/GP-VAE/"
    "c12d7bb2348bbfb64841af38e88e1093779c73b0/data/twitter_url/"
)
"""The first commit of the authors' repository, which holds the files that they trained on."""

TWITTER_URL_FILES: Mapping[str, tuple[str, str]] = {
    "train": ("trn.tsv", "5779d6068a222dbc4855a1d58488dfdb02eb66952bbf610c33163ae2731a40e6"),
    "validation": ("val.tsv", "aef023b9ccc0e553a7b014af05f29e24aa0a992c6d38e767ebcfeef1c6587ee5"),
    "test": ("tst.tsv", "e1d2a4d500ca6b3a2ff9862e98bf602d36efe86c61f0488a274eff07c77a8a5c"),
}
TWITTER_URL_ROWS: Mapping[str, int] = {"train": 110_000, "validation": 1_000, "test": 3_000}

_VOTES = re.compile(r"\s*\(\s*(\d+)\s*,\s*6\s*\)\s*")


@dataclass(frozen=True)
class Corpus:
    """How a named corpus is had."""

    description: str
    licence: str
    folder: Callable[[Path, Path, int], None]
    """Makes the parts from what the user already has: that path, the folder to fill, the seed."""
    online: Callable[[Path], None] | None = None
    """Brings the parts from the network into a folder; None where a licence is needed first."""


def get(name: str, to: str | Path, source: str | Path | None = None, seed: int = 0) -> None:
    """Bring a corpus into a folder.

    Args:
        name: one of `CORPORA`.
        to: the folder to fill.
        source: what the user already has: the raw candidates of `twitter-url`, the folder of GYAFC.
        seed: of the cut of the raw candidates.
    """
    if name not in CORPORA:
        raise BadInput(f"no corpus is called {name!r}; known are {', '.join(CORPORA)}")
    corpus = CORPORA[name]
    if source is not None:
        corpus.folder(Path(source), Path(to), seed)
    elif corpus.online is not None:
        corpus.online(Path(to))
    else:
        raise BadInput(
            f"{name} is under a licence: {corpus.licence}; then name its folder with --from"
        )


def read_twitter_votes(path: str | Path) -> Iterator[tuple[Example, int]]:
    """Stream the raw candidates of Twitter URL with their votes.

    A line is `sentence1 <tab> sentence2 <tab> (n,6) <tab> url`: n of 6 annotators call the pair a
    paraphrase.
    """
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t")
        votes = _VOTES.fullmatch(cells[2]) if len(cells) >= 3 else None
        if votes is None or int(votes[1]) > 6:
            raise BadInput(
                f"{path}, line {number}: not sentence<tab>sentence<tab>(n,6); "
                "give the candidates with their votes as Lan et al. publish them"
            )
        yield Example(cells[0].strip(), (cells[1].strip(),)), int(votes[1])


def _twitter_url_from_authors(to: Path) -> None:
    for part, (file, sha256) in TWITTER_URL_FILES.items():
        download(AUTHORS + file, to / f"{part}.tsv", sha256)


def _twitter_url_from_votes(path: Path, to: Path, seed: int) -> None:
    """Pairs that at least 4 of 6 call a paraphrase, shuffled and cut as the paper says.

    With n = 3 a pair is undecided and discarded, with n <= 2 it is a negative and dropped.
    """
    positive = [example for example, votes in read_twitter_votes(path) if votes >= 4]
    wanted = sum(TWITTER_URL_ROWS.values())
    if len(positive) < wanted:
        raise BadInput(
            f"{path} holds {len(positive):,} pairs with at least 4 of 6 votes, the paper's cut "
            f"needs {wanted:,}; give the file of the whole year"
        )
    random.Random(seed).shuffle(positive)
    start = 0
    for part, rows in TWITTER_URL_ROWS.items():
        write_examples(to / f"{part}.jsonl", positive[start : start + rows])
        start += rows


def _gyafc(domain: str) -> Callable[[Path, Path, int], None]:
    def convert(path: Path, to: Path, seed: int) -> None:
        below = path / domain if (path / domain).is_dir() else path / "GYAFC_Corpus" / domain
        if not below.is_dir():
            raise BadInput(
                f"{path} holds no {domain}; give the folder that holds {domain}/train/informal"
            )
        for part, folder in (("train", "train"), ("validation", "tune"), ("test", "test")):
            single = part == "train"
            names = ["formal"] if single else [f"formal.ref{k}" for k in range(4)]
            files = [below / folder / name for name in ("informal", *names)]
            columns = [list(read_lines(file)) for file in files]
            for file, column in zip(files, columns, strict=True):
                if len(column) != len(columns[0]):
                    raise BadInput(
                        f"{file} has {len(column):,} lines where {files[0]} has "
                        f"{len(columns[0]):,}; they must be parallel"
                    )
            examples = (Example(row[0], row[1:]) for row in zip(*columns, strict=True))
            write_examples(to / f"{part}.jsonl", examples)

    return convert


_GYAFC_LICENCE = (
    "ask for the Yahoo Answers L6 corpus and then for GYAFC "
    "as https://github.com/raosudha89/GYAFC-corpus tells"
)

CORPORA: Mapping[str, Corpus] = {
    "twitter-url": Corpus(
        "Twitter URL paraphrases: 110,000 / 1,000 / 3,000 pairs",
        "CC BY-NC-SA 3.0, research use",
        _twitter_url_from_votes,
        _twitter_url_from_authors,
    ),
    "gyafc-em": Corpus(
        "GYAFC Entertainment & Music, informal to formal: 52,595 / 2,877 / 1,416 sources",
        _GYAFC_LICENCE,
        _gyafc("Entertainment_Music"),
    ),
    "gyafc-fr": Corpus(
        "GYAFC Family & Relationships, informal to formal: 51,967 / 2,788 / 1,332 sources",
        _GYAFC_LICENCE,
        _gyafc("Family_Relationships"),
    ),
}
