"""The table that `make bench` prints, records and reports."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
REPORT = Path(__file__).parent / "RESULTS.md"


@dataclass(frozen=True)
class Line:
    """One measured number beside its goal.

    Attributes:
        name: what was measured, against what.
        value: the ratio or number.
        goal: what it should be.
        at_least: whether more is better.
        detail: the two sides of the ratio, in their units.
    """

    name: str
    value: float
    goal: float
    at_least: bool
    detail: str

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.value >= self.goal if self.at_least else self.value <= self.goal


def markdown(lines: list[Line]) -> str:
    """The table as Markdown."""
    rows = ["| measured | value | goal | | detail |", "| --- | ---: | ---: | --- | --- |"]
    for line in lines:
        sign = "≥" if line.at_least else "≤"
        verdict = "met" if line.met else "**short**"
        rows.append(
            f"| {line.name} | {line.value:.3g} | {sign} {line.goal:g} | {verdict} | {line.detail} |"
        )
    return "\n".join(rows)


def record(lines: list[Line], machine: dict[str, str], name: str) -> None:
    """Write the numbers to `results/<name>.json`."""
    FOLDER.mkdir(exist_ok=True)
    values = {"machine": machine, "lines": [{**asdict(line), "met": line.met} for line in lines]}
    (FOLDER / f"{name}.json").write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def report() -> None:
    """Write `RESULTS.md` from what is recorded."""
    parts = [
        "# What was measured",
        "",
        "Each part by `make bench`, or alone by `python -m benchmarks PART`. Every ratio is",
        "against a peer of the same run. How to read them: `docs/speed.md`.",
        "",
    ]
    for file in sorted(FOLDER.glob("*.json")):
        recorded = json.loads(file.read_text())
        if "lines" not in recorded:
            continue
        lines = [
            Line(**{key: value for key, value in line.items() if key != "met"})
            for line in recorded["lines"]
        ]
        where = "; ".join(f"{name} {value}" for name, value in recorded["machine"].items())
        parts += [f"## {file.stem}", "", markdown(lines), "", where, ""]
    if (FOLDER / "growth.png").exists():
        parts += ["![growth](results/growth.png)", ""]
    REPORT.write_text("\n".join(parts).rstrip() + "\n")
