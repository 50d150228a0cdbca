"""transformers' `Trainer` with the evidence lower bound."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler
from transformers import EarlyStoppingCallback, Trainer, TrainerControl
from transformers.trainer import TRAINING_ARGS_NAME

from ..data.codec import Codec
from ..models.system import ElboOutput
from .objective import Objective
from .tally import Tally


class Pairs(Dataset[tuple[str, str]]):
    """Training pairs in memory: source and one target."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[str, str]:
        return self.pairs[index]


class Collator:
    """Pairs to tensors, padded to the longest of their batch."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
        """`input_ids`, `attention_mask`, what else the codec encodes, and `labels`."""
        return self._codec.pairs([source for source, _ in pairs], [target for _, target in pairs])


class LengthGrouped(Sampler[int]):
    """A shuffled order in which the pairs of a batch are alike in both lengths.

    Each stretch of shuffled pairs is sorted by target, its parts by source, and its batches are
    shuffled again: half as much padding as sorting by the sum, a tenth of that of a plain shuffle.
    The order is a function of the seed and the epoch alone, so a resumed run sees the batches that
    it would have seen.

    Args:
        lengths: tokens of source and target of each pair.
        batch_size: pairs of an update.
        seed: of the order.
    """

    STRETCH, PART = 48, 8  # in batches

    def __init__(self, lengths: Sequence[tuple[int, int]], batch_size: int, seed: int) -> None:
        self._lengths = lengths
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order is drawn."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(1_000_003 * self._seed + self._epoch)
        size = self._batch_size
        full, batches = len(self) // size * size, []
        order: list[int] = torch.randperm(len(self), generator=generator).tolist()
        for stretch in _cut(order[:full], self.STRETCH * size):
            stretch.sort(key=lambda pair: self._lengths[pair][1])
            for part in _cut(stretch, self.PART * size):
                part.sort(key=lambda pair: self._lengths[pair][0])
                batches += _cut(part, size)
        for batch in torch.randperm(len(batches), generator=generator).tolist():
            yield from batches[batch]
        yield from order[full:]


def _cut(pairs: list[int], size: int) -> list[list[int]]:
    return [pairs[start : start + size] for start in range(0, len(pairs), size)]


class ElboTrainer(Trainer):
    """Minimises `Objective`; logs NLL, KL and active latent dimensions.

    Args:
        objective: how NLL and KL make a loss.
        lengths: tokens of source and target of the training pairs, to group them by.
        **kwargs: what `Trainer` takes.
    """

    def __init__(
        self, objective: Objective, lengths: Sequence[tuple[int, int]], **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.objective = objective
        self._lengths = lengths
        self._tally = Tally()

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGrouped:
        size = self.args.train_batch_size * self.args.gradient_accumulation_steps
        return LengthGrouped(self._lengths, size, self.args.seed)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        # A pickle that nothing here reads: the run's settings are in its YAML file.
        Path(output_dir or self.args.output_dir, TRAINING_ARGS_NAME).unlink()

    def _run_epoch(self, **epoch: Any) -> None:
        """No step more for a run that had come to its end: the loop looks only after one."""
        impatient = any(
            stop.early_stopping_patience_counter >= stop.early_stopping_patience
            for stop in self.callback_handler.callbacks
            if isinstance(stop, EarlyStoppingCallback)
        )
        if impatient or self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(**epoch)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of one batch, as its share of the update's tokens."""
        output: ElboOutput = model(**inputs)
        tokens = output.tokens if num_items_in_batch is None else num_items_in_batch
        loss = self.objective.loss(
            output.nll, output.kl, tokens, self.state.global_step, output.penalty
        )
        self._tally.add(output)
        return (loss, output) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add to a training log what the bound was made of since the last one."""
        if "loss" in logs:
            logs = {**logs, **self._tally.report()}
            self._tally = Tally()
        super().log(logs, start_time)

    @torch.no_grad()
    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """The bound on the validation pairs.

        `loss` is per token at the posterior mean, which is what selects the model; `nll_sampled` is
        the NLL at one z drawn from q for each sentence (the same numbers at every evaluation).
        """
        model = self.model.eval()
        tally, sampled = Tally(), Tally()
        devices = [self.args.device] if self.args.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(self.args.seed)
            for inputs in self.get_eval_dataloader(eval_dataset):
                inputs = self._prepare_inputs(inputs)
                labels = inputs.pop("labels")
                with self.compute_loss_context_manager():
                    tally.add(model.elbo(inputs, labels, sample=False))
                    if model.has_latent:
                        sampled.add(model.elbo(inputs, labels, sample=True))
        report = tally.report()
        weight = self.objective.kl_weight
        report["loss"] = (tally.nll + weight * tally.kl + tally.penalty) / max(1, tally.tokens)
        if sampled.sentences:
            report["nll_sampled"] = sampled.report()["nll"]
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in report.items()}
        self.log(metrics)
        self.control: TrainerControl = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics
