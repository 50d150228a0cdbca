import dataclasses
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polyphrase.errors import BadInput
from polyphrase.settings import from_mapping, merge, read_yaml, to_mapping, to_yaml


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: Literal["rbf", "linear"] = "rbf"
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.scale < 0:
            raise BadInput(f"scale is {self.scale}: give 0 or more")


@dataclasses.dataclass(frozen=True)
class Run:
    train: str
    rate: float = 1e-4
    steps: int | None = None
    fast: bool = False
    level: Literal[1, "all"] = 1
    length: float | Literal["median"] = "median"
    kernel: Kernel = dataclasses.field(default_factory=Kernel)
    prior: Kernel | None = None
    sizes: tuple[int, ...] = ()
    span: tuple[float, float] = (0.0, 1.0)
    kernels: list[Kernel] = dataclasses.field(default_factory=list)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    anything: Any = None
    derived: int = dataclasses.field(init=False, default=7)


kernels = st.builds(
    Kernel, name=st.sampled_from(["rbf", "linear"]), scale=st.floats(0, allow_nan=False)
)
numbers = st.floats(allow_nan=False)
runs = st.builds(
    Run,
    train=st.text(),
    rate=numbers,
    steps=st.none() | st.integers(),
    fast=st.booleans(),
    level=st.sampled_from([1, "all"]),
    length=numbers | st.just("median"),
    kernel=kernels,
    prior=st.none() | kernels,
    sizes=st.lists(st.integers()).map(tuple),
    span=st.tuples(numbers, numbers),
    kernels=st.lists(kernels, max_size=3),
    options=st.dictionaries(st.text(), st.integers()),
    anything=st.none() | st.booleans() | st.text(),
)


def given_settings(text: str, folder: Path) -> Run:
    file = folder / "run.yaml"
    file.write_text(text, encoding="utf-8")
    return from_mapping(Run, read_yaml(file), "run.yaml")


@settings(max_examples=50)
@given(run=runs)
@example(run=Run(train="\x85 \u2028"))
def test_yaml_gives_back_the_same_settings(
    run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    again = given_settings(to_yaml(run), tmp_path_factory.getbasetemp())
    assert again == run
    assert type(again.rate) is float
    assert type(again.sizes) is tuple


@pytest.mark.parametrize(
    ("written", "rate"), [("1e-4", 1e-4), ("1.0e-4", 1e-4), ("3", 3.0), ("5E+3", 5000.0)]
)
def test_every_way_to_write_a_number_is_one(tmp_path: Path, written: str, rate: float) -> None:
    run = given_settings(f"train: a\nrate: {written}\nspan: [{written}, 1]\n", tmp_path)
    assert run.rate == run.span[0] == rate
    assert (type(run.rate), type(run.span[1])) == (float, float)


def test_a_union_takes_the_member_that_fits() -> None:
    assert from_mapping(Run, {"train": "a", "length": "median"}).length == "median"
    assert from_mapping(Run, {"train": "a", "length": "1e-3"}).length == 1e-3
    assert from_mapping(Run, {"train": "a", "prior": None}).prior is None
    assert from_mapping(Run, {"train": "a", "prior": {"scale": 2}}).prior == Kernel(scale=2.0)
    assert from_mapping(Run, {"train": "a", "kernel": Kernel(scale=2)}).kernel == Kernel(scale=2)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "settings: the key 'train' is missing, and it has no default"),
        ({"train": "a", "rat": 1}, "settings: unknown key 'rat'; did you mean 'rate'?"),
        ({"train": "a", 3: 1}, "settings: unknown key 3; known are anything, fast, kernel,"),
        ({"train": "a", "derived": 1}, "settings: unknown key 'derived'; known are"),
        ({"train": 3}, "settings.train: 3 is not a text"),
        ({"train": None}, "settings.train: null is not a text"),
        ({"train": "a", "rate": "fast"}, "settings.rate: 'fast' is not a number"),
        ({"train": "a", "rate": True}, "settings.rate: True is not a number"),
        ({"train": "a", "steps": 1.5}, "settings.steps: 1.5 is not a whole number or null"),
        ({"train": "a", "steps": True}, "settings.steps: True is not a whole number or null"),
        ({"train": "a", "fast": 1}, "settings.fast: 1 is not true or false"),
        ({"train": "a", "level": True}, "settings.level: True is not one of 1, 'all'"),
        ({"train": "a", "length": "mean"}, "'mean' is not a number or one of 'median'"),
        ({"train": "a", "kernel": "rbf"}, "settings.kernel: 'rbf' is not a mapping"),
        ({"train": "a", "kernel": {"nam": "rbf"}}, "settings.kernel: unknown key 'nam'; did you"),
        ({"train": "a", "kernel": {"name": "x"}}, "settings.kernel.name: 'x' is not one of 'rbf'"),
        ({"train": "a", "prior": 1}, "settings.prior: 1 is not a mapping or null"),
        ({"train": "a", "sizes": 4}, "settings.sizes: 4 is not a list"),
        ({"train": "a", "sizes": [1, "b"]}, "settings.sizes[1]: 'b' is not a whole number"),
        ({"train": "a", "span": [1]}, "settings.span: [1] is not a list of 2 values"),
        ({"train": "a", "kernels": [{"scale": "x"}]}, "settings.kernels[0].scale: 'x' is not"),
        ({"train": "a", "options": [1]}, "settings.options: [1] is not a mapping"),
        ({"train": "a", "kernel": {"scale": -1}}, "scale is -1.0: give 0 or more"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(values: dict[Any, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as refused:
        from_mapping(Run, values)
    assert str(refused.value).startswith(sentence) or str(refused.value).endswith(sentence)


def test_yaml_keeps_the_order_of_declaration_and_plain_words() -> None:
    text = to_yaml(Run(train="été"))
    assert text.startswith("train: été\nrate: 0.0001\nsteps: null\n")
    assert list(to_mapping(Run(train="a"))) == [
        field.name for field in dataclasses.fields(Run) if field.name != "derived"
    ]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"- 1\n- 2\n", "expected 'key: value' lines, found a list"),
        (b"train: [1\n", "is not valid YAML: "),
        (b"\xff\xfe\x00bad", "is not valid YAML: "),
        (b"!!python/object/apply:os.getcwd []\n", "is not valid YAML: "),
    ],
)
def test_a_file_that_is_no_settings_is_refused(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(content)
    with pytest.raises(BadInput) as refused:
        read_yaml(file)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith(str(file))
    assert "\n" not in str(refused.value)


def test_no_file_and_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.yaml: No such file or directory; give a YAML file"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert read_yaml(tmp_path / "empty.yaml") == {}


def test_mappings_merge_key_by_key_and_stay_as_they_were() -> None:
    base = {"a": 1, "kernel": {"name": "rbf", "scale": 1.0}, "prior": None, "sizes": [1, 2]}
    over = {"kernel": {"scale": 2.0}, "prior": {"name": "linear"}, "sizes": [3], "b": 2}
    assert merge(base, over) == {
        "a": 1,
        "kernel": {"name": "rbf", "scale": 2.0},
        "prior": {"name": "linear"},
        "sizes": [3],
        "b": 2,
    }
    assert merge(base, {"kernel": None})["kernel"] is None
    assert base["kernel"] == {"name": "rbf", "scale": 1.0}
