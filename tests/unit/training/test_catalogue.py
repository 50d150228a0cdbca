"""The catalogue's rows as the command line reads them."""

from pathlib import Path
from typing import Any

import pytest

from polyphrase.cli.train import _settings
from polyphrase.data.vocabulary import Vocabulary
from polyphrase.errors import BadInput
from polyphrase.latent.config import LatentConfig
from polyphrase.models.catalogue import BASELINES, build
from polyphrase.training.catalogue import SYSTEMS, row
from polyphrase.training.run import train
from polyphrase.training.settings import TrainSettings, VocabularySettings

FILES = {"train": "a", "val": "b", "out": "c"}


def settings(system: str | None, **flags: Any) -> TrainSettings:
    made = _settings(system, None, None, {**FILES, **flags}, False)
    assert isinstance(made, TrainSettings)
    return made


def test_rows_of_the_paper_are_there() -> None:
    paper = {"pg", "t5", "multi-selectors", "variation-attention", "t-cvae"}
    paper |= {"pg-normal", "t5-normal", "pg-gp", "t5-gp"}
    assert paper | {"copy", "pg-mixture", "pg-vamp", "t5-nucleus", "t5-top-k"} <= set(SYSTEMS)


def test_published_settings() -> None:
    assert settings("pg").network == {"bottleneck": 256}
    assert settings("pg").latent is None
    latent = settings("pg-normal").latent
    assert latent is not None
    assert (latent.prior, latent.size, latent.injection) == ("normal", 256, "replace")
    assert settings("pg-gp").learning_rate == 1e-4
    assert settings("pg-gp").spread == 25.0
    attention = settings("variation-attention")
    assert (attention.learning_rate, attention.batch_size, attention.decay) == (3e-4, 6, 0.5)
    selectors = settings("multi-selectors")
    assert (selectors.learning_rate, selectors.clip) == (1e-3, 5.0)
    cvae = settings("t-cvae")
    assert cvae.betas == (0.9, 0.99)
    assert cvae.vocabulary.lowercase
    assert not settings("t-cvae-cased").vocabulary.lowercase
    assert cvae.objective.annealing_steps == 20_000


def test_flags_go_before_the_row() -> None:
    made = settings("pg-gp", **{"latent.size": 8, "learning_rate": 1e-3, "vocabulary.size": 99})
    assert made.latent is not None
    assert (made.latent.size, made.latent.prior) == (8, "gp")
    assert (made.learning_rate, made.batch_size) == (1e-3, 64)
    assert made.vocabulary == VocabularySettings(size=99)
    assert settings("pg-gp", **{"latent.prior": "none"}).latent is None


def test_a_yaml_file_may_name_the_row(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("system: pg-normal\nbatch_size: 3\n")
    made = _settings(None, file, None, dict(FILES), False)
    assert (made.system, made.batch_size, made.backbone) == ("pg-normal", 3, "pointer-generator")


def test_an_unknown_row_is_named_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="system 'pg-gpp' is unknown; did you mean 'pg-gp'"):
        row("pg-gpp")
    with pytest.raises(BadInput, match="known are copy, pg,"):
        row("zzz")


def test_a_size_that_a_network_has_not_is_named() -> None:
    words = Vocabulary(["a"])
    with pytest.raises(BadInput, match="network: pointer-generator has no setting 'hidden'"):
        build("pointer-generator", {"hidden": 3}, None, words)
    with pytest.raises(BadInput, match=r"network\.decoder_size is 'big': give a whole number"):
        build("pointer-generator", {"decoder_size": "big"}, None, words)
    with pytest.raises(BadInput, match="t-cvae has no room for a latent of another kind"):
        build("t-cvae", {}, LatentConfig(), words)


def test_adapters_need_a_pretrained_backbone(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\n")
    files = {"train": str(pairs), "val": str(pairs), "out": str(tmp_path / "out")}
    made = settings("pg", **files, **{"lora.rank": 4})
    with pytest.raises(BadInput, match="pointer-generator is trained from scratch"):
        train(made)


@pytest.mark.parametrize("size", [0, 4])
def test_a_vocabulary_has_room_for_words(size: int) -> None:
    with pytest.raises(BadInput, match=r"give 5 or more"):
        VocabularySettings(size=size)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_row_says_in_three_lines_what_it_is_and_when_to_pick_it(name: str) -> None:
    root = Path(__file__).parents[3]
    assert f"[`{name}`](docs/systems.md#{name})" in (root / "README.md").read_text()
    _, _, after = (root / "docs" / "systems.md").read_text().partition(f"\n### {name}\n\n")
    what, *_, when = entry = after.partition("\n\n")[0].splitlines()
    assert len(entry) == 3
    assert what
    assert when.startswith(("Pick it", "Put it"))


def test_every_row_says_how_wide_it_draws() -> None:
    """The library's own spread was measured for its own latent, and for no other."""
    own = {"t5-gp"}
    for name, values in SYSTEMS.items():
        draws = values.get("latent", {}) is not None or values.get("backbone") in BASELINES
        if draws and name not in own and name != "copy":
            assert "spread" in values, name
    assert {SYSTEMS[name]["spread"] for name in ("t-cvae", "variation-attention")} == {1.0}
