"""How the random context variables z reach a decoder that attends to the encoder's states."""

from typing import Literal

from torch import Tensor, nn


class Injection(nn.Module):
    """The memory that the decoder sees, of z and h.

    - `concat`, the paper's (section 2.3): memory = W_z [z ; h];
    - `add`: memory = h + W z.

    At step 0 the decoder sees h and the model is the pretrained backbone, whatever z is: the
    z-block starts at zero and, in `concat`, the h-block at I. Measured against W_z = [I ; 0] and
    [I ; I] / 2, which equal the backbone only where z = h: the lowest NLL, and at equal self-BLEU
    the highest BLEU of samples (docs/latent.md).

    Args:
        kind: `concat` or `add`.
        latent_size: D.
        width: D_h.
    """

    def __init__(self, kind: Literal["concat", "add"], latent_size: int, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.from_z = nn.Linear(latent_size, width, bias=False)
        nn.init.zeros_(self.from_z.weight)
        if kind == "concat":
            self.from_h = nn.Linear(width, width, bias=False)
            nn.init.eye_(self.from_h.weight)

    def forward(self, z: Tensor, h: Tensor) -> Tensor:
        """Fuse z `[B, N, D]` with h `[B, N, D_h]` to `[B, N, D_h]`."""
        if self.kind == "concat":
            return self.from_z(z) + self.from_h(h)
        return h + self.from_z(z)
