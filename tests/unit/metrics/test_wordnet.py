"""WordNet is found in one of three places, or METEOR is refused."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import nltk
import pytest

from polyphrase.errors import BadInput
from polyphrase.metrics import meteor
from polyphrase.metrics.meteor import Meteor, find_wordnet
from polyphrase.metrics.ngrams import Outputs


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    find_wordnet.cache_clear()
    yield
    find_wordnet.cache_clear()


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A machine without WordNet, and what it tried to download."""
    tried: list[str] = []

    class Missing:
        def ensure_loaded(self) -> None:
            raise LookupError

    def download(name: str, **settings: object) -> bool:
        tried.append(name)
        return False

    monkeypatch.setattr(nltk.corpus, "wordnet", Missing())
    monkeypatch.setattr(nltk, "download", download)
    monkeypatch.setattr(meteor, "DEBIAN", tmp_path / "none")
    return tried


def test_without_wordnet_there_is_no_meteor(nowhere: list[str]) -> None:
    with pytest.raises(BadInput) as raised:
        Meteor().statistics(Outputs([["a"]], [["a"]]))
    for way in ("nltk.downloader wordnet", "apt-get install wordnet-base", "--wordnet"):
        assert way in str(raised.value)
    assert nowhere == ["wordnet"]


def test_a_given_folder(nowhere: list[str], tmp_path: Path) -> None:
    for file in Path("/usr/share/wordnet").iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    wordnet = find_wordnet(str(tmp_path))
    assert wordnet.version == "3.0"
    names = {lemma.name() for synset in wordnet.synsets("car") for lemma in synset.lemmas()}
    assert {"auto", "automobile", "car"} <= names
    assert not any("_" in name for name in names)
    assert wordnet._reader.synsets("car")[0].lexname() == "noun.artifact"
    assert wordnet._reader.synsets("participating")[0].lexname() in ("adj.ppl", "verb.social")
    assert not nowhere


def test_a_folder_without_wordnet(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no data\.noun; give the folder with WordNet's dict"):
        find_wordnet(str(tmp_path))


def test_nltks_own_download_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        def ensure_loaded(self) -> None:
            pass

        def get_version(self) -> str:
            return "nltk's"

    monkeypatch.setattr(nltk.corpus, "wordnet", Reader())
    assert find_wordnet().version == "nltk's"
    assert Meteor().signature["wordnet"] == "nltk's"
