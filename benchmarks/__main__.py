"""`make bench`: every number beside its goal, each against a peer of the same run."""

import argparse
import os
import time

from . import core, device, generation, growth, memory, metrics, start, systems, training
from .machine import describe
from .table import markdown, record, report

PARTS = (
    *("core", "generation", "training", "systems", "memory", "start", "growth", "metrics"),
    "device",
)


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--quick", action="store_true", help="fewer sentences and steps")
    parser.add_argument("--profile", action="store_true", help="where the time goes, by stage")
    parser.add_argument("--data", metavar="FOLDER", help="of a corpus, for metrics; else made up")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}: choose of {', '.join(PARTS)}")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    machine = describe()
    print("  ".join(f"{name} {value}" for name, value in machine.items()))
    begun = time.perf_counter()
    for part in options.parts or PARTS:
        found = {
            "core": lambda: core.measure(options.quick),
            "generation": lambda: generation.measure(options.quick, options.profile),
            "training": lambda: training.measure(options.quick),
            "systems": lambda: systems.measure(options.quick),
            "memory": lambda: memory.measure(options.quick),
            "start": start.measure,
            "growth": lambda: growth.measure(options.quick),
            "metrics": lambda: metrics.measure(options.quick, options.data),
            "device": lambda: device.measure(options.quick),
        }[part]()
        if not found:
            continue
        record(found, machine, part)
        print(markdown(found), flush=True)
        report()
    minutes = (time.perf_counter() - begun) / 60
    print(f"{minutes:.1f} minutes")


if __name__ == "__main__":
    main()
