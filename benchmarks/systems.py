"""A training step of the pointer-generator over one of a plain LSTM encoder-decoder.

Run as `python -m benchmarks.systems`. Both have the paper's sizes, read the same batches and take
turns; a step is forward, backward and update.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from polyphrase.backbones.pointer_generator import PointerGenerator, PointerGeneratorConfig
from polyphrase.data.codec import IGNORED

GOAL = 2.0


class Plain(nn.Module):
    """`nn.LSTM` reads in both directions, `nn.LSTM` writes, no attention and no copying."""

    def __init__(self, config: PointerGeneratorConfig) -> None:
        super().__init__()
        width, size = 2 * config.encoder_size, config.decoder_size
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        self.encoder = nn.LSTM(
            config.embedding_size, config.encoder_size, batch_first=True, bidirectional=True
        )
        self.start_hidden = nn.Linear(width, size)
        self.start_cell = nn.Linear(width, size)
        self.decoder = nn.LSTM(config.embedding_size, size, batch_first=True)
        self.output = nn.Linear(size, config.vocab_size)

    def forward(self, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """The loss per target word."""
        packed = pack_padded_sequence(
            self.embedding(ids), mask.sum(1), batch_first=True, enforce_sorted=False
        )
        _, (hidden, cell) = self.encoder(packed)
        first = self.start_hidden(hidden.transpose(0, 1).flatten(1))[None]
        cell = self.start_cell(cell.transpose(0, 1).flatten(1))[None]
        late = F.pad(labels[:, :-1].clamp(min=0), (1, 0))
        states, _ = self.decoder(self.embedding(late), (first, cell))
        real = labels != IGNORED
        return F.cross_entropy(self.output(states[real]), labels[real])


def batches(
    config: PointerGeneratorConfig, size: int, words: int, count: int
) -> list[list[Tensor]]:
    """Random words in sentences of half to one and a half times `words`."""
    made = []
    for _ in range(count):
        lengths = torch.randint(words // 2, words * 3 // 2, (2, size))
        lengths[:, 0] = words * 3 // 2
        ids = torch.randint(4, config.vocab_size, (size, words * 3 // 2))
        labels = torch.randint(4, config.vocab_size, (size, words * 3 // 2))
        place = torch.arange(words * 3 // 2)
        mask = place < lengths[0][:, None]
        made.append(
            [
                ids.masked_fill(~mask, 0),
                mask.long(),
                labels.masked_fill(place >= lengths[1][:, None], IGNORED),
            ]
        )
    return made


def seconds(
    steps: dict[str, Callable[[list[Tensor]], None]], data: list[list[Tensor]]
) -> dict[str, float]:
    """The median time of each step, taking turns on the same batches; the first is a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number, batch in enumerate(data):
        for name, step in steps.items():
            begun = time.perf_counter()
            step(batch)
            if number:
                times[name].append(time.perf_counter() - begun)
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    """Print both times and their ratio as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--words", type=int, default=16)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = PointerGeneratorConfig()
    plain, pointer = Plain(config), PointerGenerator(config)

    def trained(
        model: nn.Module, loss: Callable[[list[Tensor]], Tensor]
    ) -> Callable[[list[Tensor]], None]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)

        def step(batch: list[Tensor]) -> None:
            optimizer.zero_grad()
            loss(batch).backward()
            optimizer.step()

        return step

    def pointing(batch: list[Tensor]) -> Tensor:
        ids, mask, labels = batch
        memory = pointer.encode({"input_ids": ids, "attention_mask": mask})
        return pointer.nll(memory, labels).sum() / (labels != IGNORED).sum()

    taken = seconds(
        {
            "plain": trained(plain, lambda batch: plain(*batch)),
            "pointer-generator": trained(pointer, pointing),
        },
        batches(config, options.batch_size, options.words, options.steps),
    )
    ratio = taken["pointer-generator"] / taken["plain"]
    print(
        json.dumps({"seconds": taken, "ratio": ratio, "goal": GOAL, "met": ratio <= GOAL}, indent=2)
    )


if __name__ == "__main__":
    main()
