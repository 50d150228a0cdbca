"""Every row of the paper's tables: trained, run and scored by the commands a user has.

    python -m benchmarks.rows --data FOLDER --out FOLDER

FOLDER holds `trn.tsv.gz`, `val.tsv.gz` and `tst.tsv.gz`, one pair a line. Pairs are drawn by seed;
no source that is tested is among those trained on. What is done already is not done again, so an
interrupted run goes on where it stopped, and a further row is added to the same table. `--record`
puts the numbers, without a word of the corpus, under `results/` and into `RESULTS.md`.
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from polyphrase.data.readers import read_examples
from polyphrase.files import write_text
from polyphrase.settings import read_yaml
from polyphrase.training.catalogue import SYSTEMS

from .table import record_rows, report, rows_markdown

KEPT = ("learning_rate", "batch_size", "epochs", "spread", "search")
"""The settings of a run that its record repeats."""


@dataclass(frozen=True)
class Budget:
    """How a row is trained where the published way, made for 50 times as many pairs, is too long.

    Attributes:
        epochs: passes over the pairs: some minutes on one core for each network.
        learning_rate: of so short a run.
        batch_size: small, for more updates.
        vocabulary: words of a network from scratch: about those that are there more than once.
        annealing: the share of the updates over which the KL's weight grows, where it does.
    """

    epochs: float
    learning_rate: float
    batch_size: int
    vocabulary: int | None = None
    annealing: float | None = None


BUDGETS = {
    "starter": Budget(1, 3e-4, 32),
    "pointer-generator": Budget(5, 1e-3, 16, vocabulary=4000),
    "multi-selectors": Budget(5, 1e-3, 16, vocabulary=4000),
    "variation-attention": Budget(3, 1e-3, 16, vocabulary=4000),
    "t-cvae": Budget(3, 3e-4, 16, vocabulary=4000, annealing=0.5),
}


def main() -> None:
    """Train, generate and score the rows, and print one table."""
    options = _options()
    out = Path(options.out)
    parts = _corpora(options, out)
    for name in options.rows or list(SYSTEMS):
        _row(name, options, out, *parts)
    names = [name for name in SYSTEMS if (out / f"{name}.done").is_file()]
    found = _report(names, options, out, parts)
    write_text(out / "report.json", json.dumps(found, indent=1) + "\n")
    print(rows_markdown(found))
    if options.record:
        record_rows(found)
        report()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of trn, val and tst .tsv.gz")
    parser.add_argument("--out", required=True, help="folder of models, predictions and scores")
    parser.add_argument("--rows", nargs="*", choices=list(SYSTEMS), help="all unless given")
    parser.add_argument("--pairs", type=int, default=2000, help="pairs to train on")
    parser.add_argument("--test", type=int, default=50, help="sources to test on")
    parser.add_argument("--steps", type=int, help="the most updates of a row")
    parser.add_argument("--effort", type=float, default=1.0, help="multiplies all passes")
    parser.add_argument(
        "--published", action="store_true", help="train as published: days on one core"
    )
    parser.add_argument("--record", action="store_true", help="write results/ and RESULTS.md")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _corpora(options: argparse.Namespace, out: Path) -> tuple[Path, Path, Path]:
    """The three files of this run, drawn once."""
    paths = tuple(out / f"{name}.tsv" for name in ("train", "val", "test"))
    if not all(path.is_file() for path in paths):
        numbers = random.Random(options.seed)
        data = Path(options.data)
        train = numbers.sample(_pairs(data / "trn.tsv.gz"), options.pairs)
        known = {source for source, _ in train}
        val = numbers.sample(_pairs(data / "val.tsv.gz"), max(10, options.pairs // 10))
        tested: dict[str, list[str]] = {}
        for source, reference in _pairs(data / "tst.tsv.gz"):
            if source not in known:
                tested.setdefault(source, []).append(reference)
        test = [
            (source, *tested[source]) for source in numbers.sample(sorted(tested), options.test)
        ]
        parts: list[Sequence[tuple[str, ...]]] = [train, val, test]
        for path, lines in zip(paths, parts, strict=True):
            write_text(path, "".join("\t".join(line) + "\n" for line in lines))
    return paths[0], paths[1], paths[2]


def _pairs(path: Path) -> list[tuple[str, str]]:
    return [
        (example.source, reference)
        for example in read_examples(path)
        for reference in example.references
    ]


def _row(
    name: str, options: argparse.Namespace, out: Path, train: Path, val: Path, test: Path
) -> None:
    """Train and run one row, as far as that is not done."""
    model, search = _model(name, out), SYSTEMS[name].get("search")
    if not (model / "model.safetensors").is_file():
        _run(model / "train.log", _train(model.name, options, train, val, model))
    done = out / f"{name}.done"
    if not done.is_file():
        flags = ["--search", search["method"], *_flags(search)] if search else []
        command = [
            *("generate", "--model", str(model), "--input", str(test), "-n", "10", "--mean"),
            *("--output", str(out / f"{name}.jsonl"), "--seed", str(options.seed)),
            *("--min-length", "1", *flags),
        ]
        begun = time.perf_counter()
        _run(out / f"{name}.log", command)
        write_text(done, f"{time.perf_counter() - begun:.1f}\n")
    print(f"{name}: generated in {done.read_text().strip()} s", file=sys.stderr)


def _model(name: str, out: Path) -> Path:
    """The folder of a row's model: a way of decoding is no other model."""
    return out / ("t5" if "search" in SYSTEMS[name] else name)


def _train(
    name: str, options: argparse.Namespace, train: Path, val: Path, model: Path
) -> list[str]:
    command = ["train", "--system", name, "--train", str(train), "--val", str(val)]
    command += ["--out", str(model), "--seed", str(options.seed), "--resume"]
    if options.steps is not None:
        command += ["--max-steps", str(options.steps)]
    budget = BUDGETS.get(SYSTEMS[name].get("backbone", "starter"))
    if options.published or budget is None:
        return command
    epochs = budget.epochs * options.effort
    command += ["--epochs", str(epochs), "--learning-rate", str(budget.learning_rate)]
    command += ["--batch-size", str(budget.batch_size)]
    if budget.vocabulary is not None:
        command += ["--vocabulary", str(budget.vocabulary)]
    if budget.annealing is not None:
        steps = budget.annealing * epochs * options.pairs / budget.batch_size
        command += ["--annealing-steps", str(round(steps))]
    return command


def _flags(search: dict[str, object]) -> list[str]:
    fields = {name: value for name, value in search.items() if name != "method"}
    return [
        part
        for name, value in fields.items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]


def _run(log: Path, command: Sequence[str]) -> None:
    print("polyphrase", *command, file=sys.stderr)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        subprocess.run([sys.executable, "-m", "polyphrase", *command], stderr=file, check=True)


def _report(
    names: Sequence[str], options: argparse.Namespace, out: Path, parts: Sequence[Path]
) -> dict[str, Any]:
    """What was done and found, in numbers alone."""
    train, val, test = parts
    command = ["evaluate", "--references", str(test), "--json"]
    empty = {}
    for name in names:
        scored = out / f"{name}.scored.jsonl"
        empty[name] = _speak(out / f"{name}.jsonl", scored)
        command += ["--predictions", str(scored)]
    found = subprocess.run(
        [sys.executable, "-m", "polyphrase", *command], stdout=subprocess.PIPE, check=True
    )
    systems = json.loads(found.stdout)["systems"]
    return {
        "corpus": {
            "pairs": _lines(train),
            "validation pairs": _lines(val),
            "test sources": _lines(test),
            "sha256": {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in parts},
        },
        "seed": options.seed,
        "budgets": None
        if options.published
        else {name: asdict(budget) for name, budget in BUDGETS.items()},
        "effort": options.effort,
        "versions": {name: version(name) for name in ("polyphrase", "torch", "transformers")},
        "rows": {
            name: {
                **_training(_model(name, out)),
                "empty": empty[name],
                "scores": {
                    key: {part: score[part] for part in ("value", "low", "high", "signature")}
                    for key, score in system["scores"].items()
                },
            }
            for name, system in zip(names, systems, strict=False)  # the last is evaluate's own
        },
    }


def _speak(predictions: Path, scored: Path) -> int:
    """Write outputs with a full stop where nothing was said, which no score is defined for.

    Returns:
        How often that was.
    """
    lines, empty = [], 0
    for line in predictions.read_text(encoding="utf-8").splitlines():
        item = json.loads(line)
        empty += sum(not one["text"].strip() for one in item["candidates"])
        for one in item["candidates"]:
            one["text"] = one["text"].strip() or "."
        item["mean"] = item["mean"].strip() or "."
        lines.append(json.dumps(item, ensure_ascii=False) + "\n")
    write_text(scored, "".join(lines))
    return empty


def _training(model: Path) -> dict[str, Any]:
    """How the model of a row came to be."""
    settings = read_yaml(model / "settings.yaml")
    found: dict[str, Any] = {"settings": {name: settings[name] for name in KEPT}}
    history = model / "history.jsonl"
    if history.is_file():
        entries = [json.loads(line) for line in history.read_text().splitlines()]
        best = min(
            (entry for entry in entries if "eval_loss" in entry),
            key=lambda entry: entry["eval_loss"],
        )
        found["updates"] = max(entry["step"] for entry in entries)
        found["best"] = {
            name: best[name]
            for name in ("step", "eval_nll", "eval_kl", "eval_active")
            if name in best
        }
    return found


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()
