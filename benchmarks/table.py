"""The table that `make bench` prints, records and reports."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
REPORT = Path(__file__).parent / "RESULTS.md"


SCORES = {
    "bleu": "BLEU",
    "meteor": "METEOR",
    "copies": "copies",
    "avg-bleu": "avg-BLEU",
    "self-bleu": "self-BLEU",
    "div-4": "Div-4",
    "unique": "Uni.",
}
"""The columns of the table of rows."""


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


def rows_markdown(found: dict[str, Any]) -> str:
    """The rows of the paper's tables, each score with half of its 95% interval."""
    head = ["row", "updates", "NLL", *SCORES.values()]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    for name, row in found["rows"].items():
        nll = row.get("best", {}).get("eval_nll")
        cells = [str(row.get("updates", "")), "" if nll is None else f"{nll:.2f}"]
        for key in SCORES:
            score = row["scores"].get(key)
            half = 0.0 if score is None else (score["high"] - score["low"]) / 2
            cells.append("" if score is None else f"{score['value']:.3f} ±{half:.3f}")
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)


def rows_caption(found: dict[str, Any]) -> str:
    """What the rows were trained on and for how long, and how their table is read."""
    corpus = found["corpus"]
    parts = [
        f"Trained on {corpus['pairs']:,} pairs, scored on {corpus['test sources']} other sources. "
        "BLEU-2, METEOR and copies are those of one output, at the mean of the latent if there is "
        "one; the other columns look at ten samples. ± is half of the 95% interval; NLL is per "
        "token (a word, or a piece of one) on the validation pairs."
    ]
    if found["budgets"] is not None:
        parts.append("")
        for name, budget in found["budgets"].items():
            words, passes = budget["vocabulary"], budget["epochs"] * found["effort"]
            parts.append(
                f"- {name}: {passes:g} times over the pairs in batches of {budget['batch_size']}, "
                f"learning rate {budget['learning_rate']:g}"
                + ("" if words is None else f", {words:,} words")
            )
        parts.append("")
    empty = {name: row["empty"] for name, row in found["rows"].items() if row["empty"]}
    if empty:
        said = ", ".join(f"{count} of {name}" for name, count in empty.items())
        parts.append(f"Samples without a word count as a full stop: {said}.")
    parts.append("`copy` is the source again: what a system that does nothing scores.")
    return "\n".join(parts)


def record_rows(found: dict[str, Any]) -> None:
    """Write the numbers of the table of rows to `results/rows.json`."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "rows.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


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
        if "rows" in recorded:
            parts += ["## rows", "", rows_caption(recorded), "", rows_markdown(recorded), ""]
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
