"""Results as files: each benchmark writes one JSON, and `RESULTS.md` is rendered from all of them.

python -m benchmarks.results     # render RESULTS.md again
"""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
FOLDER = HERE / "results"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured number beside its goal.

    Attributes:
        what: what was measured.
        measured: the number, with its unit.
        goal: what it should be; empty when there is none.
        met: whether it is; `None` without a goal.
        note: what one must know to read it.
    """

    what: str
    measured: str
    goal: str = ""
    met: bool | None = None
    note: str = ""


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text().splitlines()
        names = [line for line in lines if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True
    ).stdout.strip()
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit or "no git",
        "date": datetime.now(UTC).date().isoformat(),
    }


def record(name: str, title: str, rows: Sequence[Row]) -> None:
    """Write the rows of one benchmark, print them, and render `RESULTS.md`."""
    FOLDER.mkdir(exist_ok=True)
    result = {"title": title, "machine": machine(), "rows": [asdict(row) for row in rows]}
    (FOLDER / f"{name}.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    print("\n".join(_section(result)))
    render()


def render() -> None:
    """Write `RESULTS.md` from the JSON files."""
    lines = [
        "# Results",
        "",
        "Rendered from `benchmarks/results/*.json` by `python -m benchmarks.results`. Every number",
        "is a ratio measured side by side in one run, or says what else it is. `load` is that of",
        "the machine when the run ended: above the number of cores, absolute times mean little.",
        "",
    ]
    for file in sorted(FOLDER.glob("*.json")):
        result = json.loads(file.read_text())
        if isinstance(result, dict) and "rows" in result and "machine" in result:
            lines += [*_section(result), ""]
    (HERE / "RESULTS.md").write_text("\n".join(lines).rstrip() + "\n")


def _section(result: dict[str, Any]) -> list[str]:
    where = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
    table = ["| what | measured | goal | | note |", "| --- | --- | --- | --- | --- |"]
    for row in result["rows"]:
        met = {True: "met", False: "**missed**", None: ""}[row["met"]]
        cells = (row["what"], row["measured"], row["goal"], met, row["note"])
        table.append("| " + " | ".join(cells) + " |")
    return [f"## {result['title']}", "", where, "", *table]


if __name__ == "__main__":
    render()
