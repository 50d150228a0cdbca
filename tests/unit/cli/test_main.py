import os
import subprocess
import sys

import pytest

HEAVY = (
    "import sys, polyphrase.cli.main as main\n"
    "try:\n"
    "    main.app(sys.argv[1:])\n"
    "finally:\n"
    "    loaded = {'torch', 'transformers', 'numpy', 'onnx', 'rich'} & set(sys.modules)\n"
    "    print('heavy:', sorted(loaded))\n"
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        *([command, "--help"] for command in ("paraphrase", "train", "generate", "doctor")),
    ],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAVY, *arguments], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage:")
    assert done.stdout.endswith("heavy: []\n")
