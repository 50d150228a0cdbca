"""Every row of the paper's tables: trained, run and scored by the commands a user has.

    python -m benchmarks.rows --data FOLDER --out FOLDER

FOLDER holds `trn.tsv.gz`, `val.tsv.gz` and `tst.tsv.gz`, one pair a line. Pairs are drawn by seed;
no source that is tested is among those trained on. What is done already is not done again, so an
interrupted run goes on where it stopped, and a further row is added to the same table.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from polyphrase.data.readers import read_examples
from polyphrase.files import write_text
from polyphrase.training.catalogue import SYSTEMS

COLUMNS = {
    "bleu": "BLEU",
    "meteor": "METEOR",
    "copies": "copies",
    "avg-bleu": "avg-BLEU",
    "self-bleu": "self-BLEU",
    "div-4": "Div-4",
    "unique": "Uni.",
}


def main() -> None:
    """Train, generate and score the rows, and print one table."""
    options = _options()
    out = Path(options.out)
    train, val, test = _corpora(options, out)
    rows = options.rows or list(SYSTEMS)
    for name in rows:
        search = SYSTEMS[name].get("search")
        trained = "t5" if search else name  # a way of decoding is no other model
        model = out / trained
        if not (model / "model.safetensors").is_file():
            _run(model / "train.log", _train(trained, options, train, val, model))
        predictions = out / f"{name}.jsonl"
        done = out / f"{name}.done"
        if not done.is_file():
            flags = ["--search", search["method"], *_flags(search)] if search else []
            command = [
                *("generate", "--model", str(model), "--input", str(test), "-n", "10", "--mean"),
                *("--output", str(predictions), "--seed", str(options.seed), "--min-length", "1"),
                *flags,
            ]
            begun = time.perf_counter()
            _run(out / f"{name}.log", command)
            write_text(done, f"{time.perf_counter() - begun:.1f}\n")
        print(f"{name}: generated in {done.read_text().strip()} s", file=sys.stderr)
    scored = [name for name in SYSTEMS if (out / f"{name}.done").is_file()]
    report = _evaluate(scored, test, out)
    write_text(out / "report.json", json.dumps(report, indent=1))
    Console(width=max(110, Console().width)).print(_table(scored, report))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of trn, val and tst .tsv.gz")
    parser.add_argument("--out", required=True, help="folder of models, predictions and scores")
    parser.add_argument("--rows", nargs="*", choices=list(SYSTEMS), help="all unless given")
    parser.add_argument("--pairs", type=int, default=2000, help="pairs to train on")
    parser.add_argument("--test", type=int, default=200, help="sources to test on")
    parser.add_argument("--steps", type=int, help="the most updates of a row")
    parser.add_argument("--rate", type=float, help="learning rate of networks from scratch")
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


def _train(
    name: str, options: argparse.Namespace, train: Path, val: Path, model: Path
) -> list[str]:
    command = ["train", "--system", name, "--train", str(train), "--val", str(val)]
    command += ["--out", str(model), "--seed", str(options.seed)]
    if options.steps is not None:
        command += ["--max-steps", str(options.steps)]
    if options.rate is not None and "backbone" in SYSTEMS[name]:
        command += ["--learning-rate", str(options.rate)]
    return [*command, "--resume"]


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


def _evaluate(names: Sequence[str], test: Path, out: Path) -> dict[str, Any]:
    command = ["evaluate", "--references", str(test), "--json"]
    for name in names:
        command += ["--predictions", str(out / f"{name}.jsonl")]
    found = subprocess.run(
        [sys.executable, "-m", "polyphrase", *command], stdout=subprocess.PIPE, check=True
    )
    report: dict[str, Any] = json.loads(found.stdout)
    return report


def _table(names: Sequence[str], report: dict[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("row")
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    for name, system in zip(names, report["systems"], strict=False):
        scores = system["scores"]
        cells = [f"{scores[key]['value']:.3f}" if key in scores else "-" for key in COLUMNS]
        table.add_row(name, *cells)
    return table


if __name__ == "__main__":
    main()
