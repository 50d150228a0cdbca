import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import nltk
import pytest
import torch

from polyphrase import __version__
from polyphrase.backbones import starter
from polyphrase.cli import doctor
from polyphrase.metrics import meteor

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def polyphrase(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "polyphrase", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def test_a_healthy_machine(tmp_path: Path) -> None:
    done = polyphrase("doctor", POLYPHRASE_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert f"ok      polyphrase    {__version__}" in lines
    assert f"ok      torch         {torch.__version__}" in lines
    assert f"ok      transformers  {metadata.version('transformers')}" in lines
    path = starter.starter_path().name
    assert (
        f"ok      starter       not converted yet: its first use does, into {tmp_path}/{path}"
        in (lines)
    )
    assert lines[-1].endswith(f" GB free for {tmp_path}")
    assert done.stderr == ""


def test_json_is_one_object_with_the_same_findings(tmp_path: Path) -> None:
    done = polyphrase("doctor", "--json", POLYPHRASE_CACHE=str(tmp_path))
    report = json.loads(done.stdout)
    assert report["healthy"] is True
    found = {finding["name"]: finding for finding in report["findings"]}
    assert set(found) >= {"python", "polyphrase", "torch", "device", "starter", "wordnet", "disk"}
    assert found["torch"] == {
        "name": "torch", "state": "ok", "found": torch.__version__, "remedy": "",
    }  # fmt: skip
    assert set(doctor.EXTRAS) <= set(found)


def test_a_torch_that_does_not_load_is_broken(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libgomp.so.1:\\n cannot open')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = polyphrase("doctor", PYTHONPATH=path, POLYPHRASE_CACHE=str(tmp_path))
    assert done.returncode == 1
    assert (
        "cannot be imported: libgomp.so.1: cannot open; run pip install --force-reinstall torch"
    ) in done.stdout
    assert "broken  device        unknown without torch; see torch above" in done.stdout
    assert done.stderr == ""


def test_a_cache_that_cannot_be_written_is_broken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = polyphrase("doctor", POLYPHRASE_CACHE=str(tmp_path / "file" / "cache"))
    assert done.returncode == 1
    assert (
        f"broken  starter       {tmp_path}/file cannot be written; "
        "set POLYPHRASE_CACHE to a folder that can be written\n"
    ) in done.stdout


def found_by(monkeypatch: pytest.MonkeyPatch, *absent: str) -> dict[str, doctor.Finding]:
    """The findings where some packages are not installed."""
    real = metadata.version

    def version(package: str) -> str:
        if package in absent:
            raise metadata.PackageNotFoundError(package)
        return real(package)

    monkeypatch.setattr(metadata, "version", version)
    return {finding.name: finding for finding in doctor.examine()}


def test_an_extra_that_is_missing_names_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = found_by(monkeypatch, "nltk")
    assert findings["metrics"].state == "missing"
    assert findings["metrics"].found.endswith(", nltk not installed")
    assert findings["metrics"].remedy == "run pip install 'polyphrase[metrics]'"
    assert "broken" not in {finding.state for finding in findings.values()}


def test_what_is_required_is_broken_when_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = found_by(monkeypatch, "onnx", starter.PACKAGE)
    assert findings["onnx"] == doctor.Finding(
        "onnx", "broken", "not installed", "run pip install onnx"
    )
    assert findings["starter"].state == "broken"
    assert findings["starter"].remedy == f"run pip install {starter.PACKAGE}"


def test_wordnet_is_found_where_debian_or_nltk_puts_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(meteor, "DEBIAN", tmp_path / "wordnet")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk_data")])
    assert found_by(monkeypatch)["wordnet"] == doctor.Finding(
        "wordnet",
        "missing",
        "not found: METEOR needs it",
        "run apt-get install wordnet-base, or python -m nltk.downloader wordnet",
    )
    corpora = tmp_path / "nltk_data" / "corpora"
    corpora.mkdir(parents=True)
    with zipfile.ZipFile(corpora / "wordnet.zip", "w") as archive:
        archive.mkdir("wordnet")
        archive.writestr("wordnet/data.noun", "")
    assert found_by(monkeypatch)["wordnet"].found.startswith(f"in {corpora / 'wordnet.zip'}")

    (tmp_path / "wordnet").mkdir()
    (tmp_path / "wordnet" / "data.noun").touch()
    assert found_by(monkeypatch)["wordnet"].found == f"in {tmp_path / 'wordnet'}"


class Usage(NamedTuple):
    free: int


def test_a_full_disk_is_broken_until_the_starter_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POLYPHRASE_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10_000_000))
    findings = found_by(monkeypatch)
    assert findings["starter"].state == "broken"
    assert findings["starter"].found == "no space left to convert it: it takes 0.4 GB"
    assert findings["disk"].found == f"0.0 GB free for {tmp_path}"

    monkeypatch.setattr(starter, "write_checkpoint", lambda folder: (folder / "a").touch())
    folder = starter.starter_folder()
    assert found_by(monkeypatch)["starter"] == doctor.Finding(
        "starter", "ok", f"converted, in {folder}"
    )


def test_extras_and_requirements_are_those_of_the_package() -> None:
    project: dict[str, Any] = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]

    def name(requirement: str) -> str:
        return requirement.partition(">=")[0].partition("==")[0]

    extras = project["optional-dependencies"]
    real = {
        key: tuple(map(name, extras[key])) for key in extras if key not in ("all", "bench", "dev")
    }
    assert real == doctor.EXTRAS
    assert set(doctor.REQUIRED) <= set(map(name, project["dependencies"]))
    assert set(doctor.IMPORTED) <= set(doctor.REQUIRED)
