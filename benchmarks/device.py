"""Generation on a CUDA device, beside `generate` on the same memory in the same format.

Run as `python -m benchmarks device` on a machine with one; elsewhere it says that there is none.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from polyphrase import load

from .generation import GROUP, SAMPLES, SEARCH, after_end, groups, ours
from .machine import seconds
from .peers import transformers_generate
from .table import Line


def finished(action: Callable[[], object]) -> None:
    """Act, and wait until the device has finished."""
    action()
    torch.cuda.synchronize()


def warm_seconds(action: Callable[[], object], times: int) -> float:
    """The shortest of some runs after the first."""
    finished(action)
    return seconds(partial(finished, action), times)


@torch.inference_mode()
def measure(quick: bool) -> list[Line]:
    """The lines of the table about the device; none where there is no device."""
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing to measure")
        return []
    lines = []
    name = torch.cuda.get_device_name()
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        rewriter = load(device="cuda", precision=precision)  # type: ignore[arg-type] # a loop
        model: Any = rewriter.model
        memory = groups(rewriter, GROUP)[0]
        found = ours(rewriter, memory)
        fast = warm_seconds(partial(ours, rewriter, memory), 2 if quick else 5) / GROUP
        network = model.backbone.network.to(dtype)
        memory = memory.with_states(memory.states.to(dtype))
        expected = transformers_generate(network, memory, SEARCH).cpu()
        slow = warm_seconds(
            partial(transformers_generate, network, memory, SEARCH), 1 if quick else 2
        )
        end, pad = model.rules.end, 0
        same = (after_end(found.tokens.cpu(), end, pad) == after_end(expected, end, pad)).all(-1)
        lines.append(
            Line(
                f"generation on a device, {precision} / batched `generate`",
                slow / GROUP / fast,
                1,
                True,
                f"{fast:.3f} against {slow / GROUP:.3f} s a sentence on {name}, "
                f"{float(same.float().mean()):.0%} of {GROUP * SAMPLES * SEARCH.beams} hypotheses "
                "equal",
            )
        )
    return lines
