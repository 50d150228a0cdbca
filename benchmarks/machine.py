"""What a measurement was made on."""

import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import ctranslate2
import torch
import transformers


def describe() -> dict[str, str]:
    """Processor, threads, versions and commit."""
    processor = platform.processor()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        names = [line for line in information.read_text().splitlines() if "model name" in line]
        processor = names[0].partition(":")[2].strip() if names else processor
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return {
        "processor": f"{processor} ({torch.backends.cpu.get_cpu_capability()})",
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "ctranslate2": ctranslate2.__version__,
        "commit": commit.stdout.strip() or "unknown",
    }


def seconds(action: Callable[[], object], times: int = 1) -> float:
    """The shortest of some runs: what else the machine does can only add."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best


@torch.inference_mode()
def product_rate(dtype: torch.dtype) -> float:
    """Multiply-adds per second, times two, of a large matrix product in the best layout."""
    from polyphrase.backbones.packed import Product

    rows, width = 1024, 2048
    x = torch.randn(rows, width).to(dtype)
    product = Product(torch.randn(width, width), dtype)
    product(x)
    return 2 * rows * width * width / seconds(lambda: product(x), times=30)
