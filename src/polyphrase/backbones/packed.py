"""Matrix products whose weights are laid out once for the processor."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Activation = Literal["none", "relu", "gelu"]


class Product:
    """y = f(x Wᵀ), with W in the layout that oneDNN multiplies with, when it is there.

    A plain `linear` brings W into that layout anew at every call (bfloat16), or multiplies with a
    slower library (float32): half of the time of a decoding step. Where oneDNN is missing, or on
    another device, this is `linear`.

    Args:
        weight: W, `[out, in]`.
        dtype: the number format of x, W and y.
        activation: f; `gelu` is its tanh form, as in T5.
    """

    def __init__(self, weight: Tensor, dtype: torch.dtype, activation: Activation = "none") -> None:
        weight = weight.detach().to(dtype).contiguous()
        self._packed = can_pack(weight.device, dtype)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight) if self._packed else weight
        self._activation = activation

    def __call__(self, x: Tensor) -> Tensor:
        """f(x Wᵀ), `[R, in]` to `[R, out]`."""
        if self._packed:
            form = "tanh" if self._activation == "gelu" else ""
            return torch.ops.mkldnn._linear_pointwise(
                x, self._weight, None, self._activation, [], form
            )
        y = F.linear(x, self._weight)
        if self._activation == "gelu":
            return F.gelu(y, approximate="tanh")
        return F.relu(y) if self._activation == "relu" else y

    def times(self, x: Tensor, factor: Tensor) -> Tensor:
        """(x Wᵀ) ∘ factor, `[R, out]`, in one pass over the product."""
        if self._packed:
            return torch.ops.mkldnn._linear_pointwise.binary(x, factor, self._weight, None, "mul")
        return F.linear(x, self._weight) * factor


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies this format on this device at full speed."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and has_bfloat16(device))


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 natively, and so faster than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
