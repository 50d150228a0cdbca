"""How the random context variables z reach a decoder that attends to the encoder's states."""

from typing import Literal

from torch import Tensor, nn


class Injection(nn.Module):
    """The memory that the decoder sees, of z and h.

    - `concat`, the paper's (section 2.3): memory = W_z [z ; h];
    - `add`: memory = h + W z;
    - `replace`, the paper's for the pointer-generator: memory = W z + b, so that attention sees and
      copies by z alone.

    With the first two the decoder sees h at step 0 and the model is the pretrained backbone,
    whatever z is: the z-block starts at zero and, in `concat`, the h-block at I. Measured against
    W_z = [I ; 0] and [I ; I] / 2, which equal the backbone only where z = h: the lowest NLL, and at
    equal self-BLEU the highest BLEU of samples (docs/latent.md).

    Args:
        kind: `concat`, `add` or `replace`.
        latent_size: D.
        width: D_h.
    """

    def __init__(
        self, kind: Literal["concat", "add", "replace"], latent_size: int, width: int
    ) -> None:
        super().__init__()
        self.kind = kind
        self.from_z = nn.Linear(latent_size, width, bias=kind == "replace")
        if kind == "replace":
            return
        nn.init.zeros_(self.from_z.weight)
        if kind == "concat":
            self.from_h = nn.Linear(width, width, bias=False)
            nn.init.eye_(self.from_h.weight)

    def forward(self, z: Tensor, h: Tensor) -> Tensor:
        """Fuse z `[B, N, D]` with h `[B, N, D_h]` to `[B, N, D_h]`."""
        if self.kind == "replace":
            return self.from_z(z)
        if self.kind == "concat":
            return self.from_z(z) + self.from_h(h)
        return h + self.from_z(z)
