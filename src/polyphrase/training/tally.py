"""Sums of what the bound was made of, over batches."""

from collections.abc import Callable

import torch

from ..models.system import ElboOutput


class Tally:
    """Adds up batches and reports per token and per sentence."""

    def __init__(self) -> None:
        self.nll = 0.0
        self.kl = 0.0
        self.penalty = 0.0
        self.tokens = 0
        self.sentences = 0
        self._diagnose: Callable[[], dict[str, float]] | None = None

    @torch.no_grad()
    def add(self, output: ElboOutput) -> None:
        """Count one batch."""
        self.nll += float(output.nll.sum())
        self.kl += float(output.kl.sum())
        self.tokens += int(output.tokens)
        self.sentences += len(output.nll)
        if output.penalty is not None:
            self.penalty += float(output.penalty.sum())
        self._diagnose = output.diagnose

    @torch.no_grad()
    def report(self) -> dict[str, float]:
        """NLL per token, KL per sentence, and what the latent says of itself.

        That is of the last batch alone, which is what a log line can afford.
        """
        if not self.sentences:
            return {}
        report = {"nll": self.nll / max(1, self.tokens)}
        if self.penalty:
            report["penalty"] = self.penalty / max(1, self.tokens)
        if self._diagnose is not None:
            report["kl"] = self.kl / self.sentences
            report.update(self._diagnose())
        return report
