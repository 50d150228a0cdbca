"""What a person sees of a run, and what stays of it on disk."""

import json
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..errors import PolyphraseWarning
from ..files import write_text


class PosteriorCollapse(PolyphraseWarning):
    """The latent has stopped carrying anything of the source."""


class CollapseAlarm(TrainerCallback):
    """Says in words when the posterior has collapsed.

    The latent is dead when no dimension's posterior mean varies with the source any more (active
    units, Burda et al. 2016): whatever the decoder still knows, it does not know it from z.
    """

    def __init__(self) -> None:
        self._raised = False

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **_: Any,
    ) -> None:
        """Compare the active dimensions of this evaluation with what a live latent has."""
        active = metrics.get("eval_active")
        if active is None or self._raised or active > 0:
            return
        self._raised = True
        warnings.warn(
            f"posterior collapse at step {state.global_step}: no latent dimension is active and "
            f"the KL is {metrics['eval_kl']:.3g} nats per sentence, so z says nothing of the "
            "source. Try a Gaussian-process prior (--prior gp), a smaller --kl-weight, "
            "--annealing-steps or --free-bits",
            PosteriorCollapse,
            stacklevel=2,
        )


class ProgressBar(TrainerCallback):
    """A bar with NLL, KL and active dimensions, and one line per evaluation."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[now]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Show the bar."""
        self._task = self._bar.add_task("", total=state.max_steps, now="")
        self._bar.start()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Put the newest numbers beside the bar."""
        if logs and "nll" in logs:
            self._bar.update(self._task, now=_parts(logs, ""))
            if not self._console.is_terminal:
                self._console.print(f"step {state.global_step:>6}  train  {_parts(logs, '')}")

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **_: Any,
    ) -> None:
        """Print one line that stays."""
        line = f"step {state.global_step:>6}  valid  {_parts(metrics, 'eval_')}"
        self._console.print(f"{line}  loss {metrics['eval_loss']:.4f}", highlight=False)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Take the bar away."""
        self._bar.stop()


class History(TrainerCallback):
    """`history.jsonl`: every logged number, one object per line, written whole each time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "history.jsonl"

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Write the log so far."""
        self._write(state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Write the whole log."""
        self._write(state)

    def _write(self, state: TrainerState) -> None:
        write_text(self._path, "".join(json.dumps(entry) + "\n" for entry in state.log_history))


def _parts(logs: dict[str, float], prefix: str) -> str:
    parts = [f"nll {logs[prefix + 'nll']:.4f}"]
    if prefix + "kl" in logs:
        parts.append(f"kl {logs[prefix + 'kl']:.2f}")
    if prefix + "active" in logs:
        parts.append(f"active {logs[prefix + 'active']:.0f}")
    return "  ".join(parts)
