"""Sums of what the bound was made of, over batches."""

import torch

from ..latent.latent import Beliefs
from ..models.latent_seq2seq import ElboOutput


class Tally:
    """Adds up batches and reports per token and per sentence."""

    def __init__(self) -> None:
        self.nll = 0.0
        self.kl = 0.0
        self.floor = 0.0
        self.tokens = 0
        self.sentences = 0
        self._beliefs: Beliefs | None = None

    @torch.no_grad()
    def add(self, output: ElboOutput) -> None:
        """Count one batch."""
        self.nll += float(output.nll.sum())
        self.kl += float(output.kl.sum())
        self.tokens += int(output.tokens)
        self.sentences += len(output.nll)
        self._beliefs = output.beliefs

    @torch.no_grad()
    def report(self) -> dict[str, float]:
        """NLL per token, KL and its floor per sentence, and active latent dimensions.

        The dimensions are those of the last batch, which is what a log line can afford.
        """
        if not self.sentences:
            return {}
        report = {"nll": self.nll / max(1, self.tokens)}
        if self._beliefs is not None:
            report["kl"] = self.kl / self.sentences
            report["kl_floor"] = float(self._beliefs.floor().mean())
            report["active"] = float(self._beliefs.active().sum())
            report["correlation"] = self._beliefs.correlation()
        return report
