"""The paper's corpora, from folders and files laid out as their owners lay them out."""

import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from polyphrase.data import corpora
from polyphrase.data.readers import Example, read_examples
from polyphrase.errors import BadInput


def test_the_votes_of_the_raw_candidates(tmp_path: Path) -> None:
    path = tmp_path / "raw.txt"
    path.write_text("A headline \tits tweet \t(5,6)\thttps://t.co/x\nb\tc\t(0, 6)\turl\n")
    assert list(corpora.read_twitter_votes(path)) == [
        (Example("A headline", ("its tweet",)), 5),
        (Example("b", ("c",)), 0),
    ]


@pytest.mark.parametrize("line", ["a\tb", "a\tb\t5\turl", "a\tb\t(7,6)\turl"])
def test_a_line_without_votes(tmp_path: Path, line: str) -> None:
    path = tmp_path / "raw.txt"
    path.write_text(f"a\tb\t(4,6)\turl\n{line}\n")
    with pytest.raises(BadInput, match="line 2: not sentence<tab>sentence<tab>"):
        list(corpora.read_twitter_votes(path))


def test_the_cut_of_the_raw_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "TWITTER_URL_ROWS", {"train": 20, "validation": 3, "test": 5})
    raw = tmp_path / "raw.txt"
    raw.write_text("".join(f"s{n}\tt{n}\t({n % 7},6)\turl\n" for n in range(7 * 10)))
    parts = {}
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        corpora.get("twitter-url", tmp_path / folder, raw, seed)
        parts[folder] = {
            part: list(read_examples(tmp_path / folder / f"{part}.jsonl"))
            for part in ("train", "validation", "test")
        }
    assert parts["a"] == parts["b"] != parts["c"]
    assert [len(rows) for rows in parts["a"].values()] == [20, 3, 5]
    sources = {row.source for rows in parts["a"].values() for row in rows}
    assert len(sources) == 28
    assert all(int(source[1:]) % 7 >= 4 for source in sources)


def test_too_few_positives_for_the_cut(tmp_path: Path) -> None:
    raw = tmp_path / "raw.txt"
    raw.write_text("a\tb\t(4,6)\turl\na\tb\t(3,6)\turl\n")
    with pytest.raises(BadInput, match=r"holds 1 pairs .* needs 114,000"):
        corpora.get("twitter-url", tmp_path / "out", raw)


def licence_holders_folder(root: Path, domain: str) -> None:
    for folder, names in (
        ("train", ["formal", "informal"]),
        ("tune", ["formal", "informal", *(f"formal.ref{k}" for k in range(4))]),
        ("test", ["formal", "informal", *(f"formal.ref{k}" for k in range(4))]),
    ):
        (root / domain / folder).mkdir(parents=True)
        for name in names:
            (root / domain / folder / name).write_text(f"{folder} {name} 1\n{folder} {name} 2\n")


@pytest.mark.parametrize("below", ["", "GYAFC_Corpus"])
@pytest.mark.parametrize(
    ("name", "domain"),
    [("gyafc-em", "Entertainment_Music"), ("gyafc-fr", "Family_Relationships")],
)
def test_gyafc(tmp_path: Path, name: str, domain: str, below: str) -> None:
    licence_holders_folder(tmp_path / "mine" / below, domain)
    corpora.get(name, tmp_path / "out", tmp_path / "mine")
    train = list(read_examples(tmp_path / "out" / "train.jsonl"))
    test = list(read_examples(tmp_path / "out" / "test.jsonl"))
    validation = list(read_examples(tmp_path / "out" / "validation.jsonl"))
    assert train[1] == Example("train informal 2", ("train formal 2",))
    assert test[0] == Example("test informal 1", tuple(f"test formal.ref{k} 1" for k in range(4)))
    assert [len(row.references) for row in validation] == [4, 4]


def test_gyafc_that_is_not_parallel(tmp_path: Path) -> None:
    licence_holders_folder(tmp_path, "Entertainment_Music")
    (tmp_path / "Entertainment_Music/test/formal.ref2").write_text("one\n")
    with pytest.raises(BadInput, match=r"formal.ref2 has 1 lines where .*informal has 2"):
        corpora.get("gyafc-em", tmp_path / "out", tmp_path)


def test_what_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"gyafc-em is under a licence: ask .*raosudha89/GYAFC-corpus"
    ):
        corpora.get("gyafc-em", tmp_path)
    with pytest.raises(BadInput, match="no corpus is called 'x'; known are twitter-url, gyafc-em"):
        corpora.get("x", tmp_path)
    with pytest.raises(BadInput, match="holds no Family_Relationships"):
        corpora.get("gyafc-fr", tmp_path / "out", tmp_path)


def test_the_authors_files_are_fetched_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(corpora, "download", lambda *arguments: asked.append(arguments))
    corpora.get("twitter-url", tmp_path)
    assert [str(path.relative_to(tmp_path)) for _, path, _ in asked] == [
        "train.tsv",
        "validation.tsv",
        "test.tsv",
    ]
    assert all(
        url.startswith("https://raw.githubusercontent.com/wyu-du/GP-VAE/") for url, *_ in asked
    )
    assert all(len(sha256) == 64 for *_, sha256 in asked)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_the_authors_files_from_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {}
    (tmp_path / "served").mkdir()
    for part, name in (("train", "trn.tsv"), ("validation", "val.tsv"), ("test", "tst.tsv")):
        data = f"{part} source\t{part} reference\n".encode()
        (tmp_path / "served" / name).write_bytes(data)
        files[part] = (name, hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(corpora, "TWITTER_URL_FILES", files)
    handler = partial(Quiet, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(corpora, "AUTHORS", f"http://127.0.0.1:{server.server_port}/")
        corpora.get("twitter-url", tmp_path / "out")
        (tmp_path / "served" / "tst.tsv").write_text("another\tfile\n")
        with pytest.raises(BadInput, match=r"tst.tsv sent other bytes than expected"):
            corpora.get("twitter-url", tmp_path / "other")
        server.shutdown()
    assert list(read_examples(tmp_path / "out" / "test.tsv")) == [
        Example("test source", ("test reference",))
    ]
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == [
        "train.tsv",
        "validation.tsv",
    ]
