"""A split shares nothing between its parts, and its file makes the same split elsewhere."""

import json
import random
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyphrase.data.readers import Example
from polyphrase.data.split import By, apply_split, make_split, read_split, source_hash, write_split
from polyphrase.errors import BadInput
from polyphrase.text import normal_form

ROWS = [Example(f"Source {n // 3}", (f"reference {n % 40}",)) for n in range(1500)]


def parts_of(rows: list[Example], **settings: object) -> dict[str, list[Example]]:
    split = make_split(rows, **settings)  # type: ignore[arg-type]
    parts = defaultdict(list)
    for part, row in apply_split(split, lambda: rows):
        parts[part].append(row)
    return parts


def test_no_source_is_shared_and_the_shares_are_met() -> None:
    parts = parts_of(ROWS, validation=0.1, test=0.2)
    assert sum(map(len, parts.values())) == len(ROWS)
    sources = {part: {row.source for row in rows} for part, rows in parts.items()}
    assert not sources["train"] & sources["test"] | sources["train"] & sources["validation"]
    assert not sources["test"] & sources["validation"]
    assert len(sources["test"]) == pytest.approx(100, abs=25)
    assert len(sources["validation"]) == pytest.approx(50, abs=20)


TEXTS = st.sampled_from(["a", "A.", "b", "c d", "C d!", "e", "f", "g", "h"])


@given(
    rows=st.lists(st.builds(lambda s, r: Example(s, (r,)), TEXTS, TEXTS), min_size=1, max_size=12),
    seed=st.integers(0, 50),
)
def test_by_text_no_text_is_met_again_on_either_side(rows: list[Example], seed: int) -> None:
    parts = parts_of(rows, by="text", validation=0.3, test=0.4, seed=seed)
    met = {
        part: {normal_form(text) for row in group for text in (row.source, *row.references)}
        for part, group in parts.items()
    }
    names = list(met)
    assert all(not met[one] & met[two] for i, one in enumerate(names) for two in names[:i])


@pytest.mark.parametrize("by", ["source", "text"])
def test_the_split_is_the_same_in_any_order_and_another_with_another_seed(by: By) -> None:
    rows = [Example(f"s{n}", (f"r{n}",)) for n in range(300)]
    shuffled = random.Random(0).sample(rows, len(rows))
    assert make_split(rows, by) == make_split(shuffled, by)
    assert make_split(rows, by).test != make_split(rows, by, seed=1).test


def test_the_file_is_small_and_holds_no_text(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    split = make_split(ROWS)
    write_split(path, split)
    assert read_split(path) == split
    text = path.read_text()
    assert "Source" not in text
    assert len(text) < 25 * len({row.source for row in ROWS})
    listed = json.loads(text)
    assert listed["rows"] == 1500
    assert set(listed["test"]) <= {source_hash(row.source) for row in ROWS}


def test_the_hash_is_the_documented_one() -> None:
    # printf helloworld | sha256sum | cut -c-16
    assert source_hash("Hello , world !") == "936a185caaa266bb"


def test_other_data_is_refused() -> None:
    split = make_split(ROWS)
    with pytest.raises(BadInput, match="made for 1,500 rows, these are 1,499"):
        list(apply_split(split, lambda: ROWS[1:]))
    other = [*ROWS[1:], Example("another", ("one",))]
    with pytest.raises(BadInput, match="these are 1,500 with other sources"):
        list(apply_split(split, lambda: other))


def test_bad_files_and_shares(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("no json", "[]", '{"format": "else"}'):
        path.write_text(text)
        with pytest.raises(BadInput, match="is no split file"):
            read_split(path)
    with pytest.raises(BadInput, match="No such file"):
        read_split(tmp_path / "none.json")
    with pytest.raises(BadInput, match="no shares of the sources"):
        make_split(ROWS, test=1.0)
