"""Start: from a cold process to the first paraphrase, beside the bare reading of the weights."""

import subprocess
import sys

from polyphrase.backbones.starter import starter_folder

from .machine import seconds
from .table import Line

HELP = "from polyphrase.cli.main import main; main()"
BARE = "import sys; from safetensors.torch import load_file; load_file(sys.argv[1])"
IMPORT = "from transformers import T5ForConditionalGeneration"
FIRST = """
from polyphrase.allocator import keep_big_buffers
keep_big_buffers()
import polyphrase
polyphrase.load().generate(["How do I learn to cook well?"], n=1)
"""


def cold(code: str, *arguments: str) -> float:
    """Seconds of a fresh process, the better of three."""
    run = [sys.executable, "-c", code, *arguments]
    return seconds(lambda: subprocess.run(run, capture_output=True, check=True), 3)


def measure() -> list[Line]:
    """The lines of the table about starting."""
    bare = cold(BARE, str(starter_folder() / "model.safetensors"))
    first, imports, help_ = cold(FIRST), cold(IMPORT), cold(HELP, "--help")
    return [
        Line(
            "first paraphrase from a cold process / bare `safetensors` load",
            first / bare,
            3,
            False,
            f"{first:.1f} against {bare:.1f} s; importing transformers' T5 alone {imports:.1f} s",
        ),
        Line("`polyphrase --help`, seconds", help_, 0.5, False, "cold process"),
    ]
