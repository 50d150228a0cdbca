"""What recurrent encoder-decoders share: reading in both directions, and additive attention."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class BiLSTM(nn.Module):
    """An LSTM in both directions over sentences of unequal length, free of their padding.

    Shapes: B sentences, N positions, E features, H the size of one direction.
    """

    def __init__(self, features: int, size: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            features, size, layers, batch_first=True, bidirectional=True, dropout=dropout
        )
        start_lstm(self.lstm)

    def forward(self, features: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Read sentences that are padded on the right.

        Args:
            features: `[B, N, E]`.
            mask: true at real positions, `[B, N]`.

        Returns:
            The states, `[B, N, 2 H]`, zero at padding; and the last layer's last output and cell,
            both directions side by side, `[B, 2 H]`.
        """
        output, (hidden, cell) = self.lstm(_packed(features, mask))
        return _padded(output, mask), _both_directions(hidden), _both_directions(cell)


class BiGRU(nn.Module):
    """A GRU in both directions, as `BiLSTM`."""

    def __init__(self, features: int, size: int) -> None:
        super().__init__()
        self.gru = nn.GRU(features, size, batch_first=True, bidirectional=True)

    def forward(self, features: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The states, `[B, N, 2 H]`, and the last outputs of both directions, `[B, 2 H]`."""
        output, hidden = self.gru(_packed(features, mask))
        return _padded(output, mask), _both_directions(hidden)


def _packed(features: Tensor, mask: Tensor) -> PackedSequence:
    lengths = mask.sum(1).clamp(min=1).cpu()
    return pack_padded_sequence(features, lengths, batch_first=True, enforce_sorted=False)


def _padded(output: PackedSequence, mask: Tensor) -> Tensor:
    return pad_packed_sequence(output, batch_first=True, total_length=mask.shape[1])[0]


def _both_directions(last: Tensor) -> Tensor:
    """The two directions of one sentence side by side, never those of two sentences."""
    return torch.cat([last[-2], last[-1]], -1)


def start_lstm(lstm: nn.Module) -> None:
    """Biases of 0, but 1 for the forget gates (Jozefowicz et al. 2015): PyTorch adds two biases."""
    for name, parameter in lstm.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
        if "bias_hh" in name:
            quarter = len(parameter) // 4
            nn.init.ones_(parameter[quarter : 2 * quarter])


class AdditiveAttention(nn.Module):
    """a_i = softmax_i w . tanh(W_h x_i + W_s s + b + w_c cov_i), Bahdanau et al. 2015.

    `keys` makes the memory's side once for a sentence; each step adds its own.

    Shapes: R rows, N positions, D memory, Q query and A attention dimensions.
    """

    def __init__(
        self, memory: int, query: int, size: int, bias: bool = True, coverage: bool = False
    ) -> None:
        super().__init__()
        self.keys = nn.Linear(memory, size, bias=False)
        self.query = nn.Linear(query, size, bias=bias)
        self.coverage = nn.Linear(1, size, bias=False) if coverage else None
        self.energy = nn.Linear(size, 1, bias=False)

    def forward(
        self, keys: Tensor, mask: Tensor, query: Tensor, coverage: Tensor | None = None
    ) -> Tensor:
        """Give log a, -inf at padding: a distribution over the real positions alone.

        Args:
            keys: `self.keys(states)`, `[R, N, A]`.
            mask: true at real positions, `[R, N]`.
            query: `[R, Q]`.
            coverage: the sum of earlier attentions, `[R, N]`, if there is a weight for it.
        """
        sums = keys + self.query(query)[:, None]
        if self.coverage is not None and coverage is not None:
            sums = sums + self.coverage(coverage[..., None])
        scores = self.energy(torch.tanh(sums))[..., 0]
        return scores.masked_fill(~mask, -torch.inf).log_softmax(-1)
