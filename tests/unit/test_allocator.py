import ctypes
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from polyphrase.allocator import keep_big_buffers

FAULTS = """
import resource, sys, torch
from polyphrase.allocator import keep_big_buffers
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    keep_big_buffers()
torch.ones(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_big_buffers_are_not_asked_for_again() -> None:
    def faults(how: str) -> int:
        run = [sys.executable, "-c", FAULTS, how]
        return int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)

    if not keep_big_buffers():
        assert sys.platform != "linux" or "musl" in sys.version
        return
    assert faults("keep") < faults("leave") / 2


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_another_c_library_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def missing(_: Any) -> Callable[..., int]:
        raise error("no such thing")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert keep_big_buffers() is False
