"""Low-rank adapters (LoRA, Hu et al. 2022) on a backbone; peft trains them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Size of the adapters: W + alpha / rank * B A, with A `[rank, in]` and B `[out, rank]`."""

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise BadInput(f"the rank of LoRA is {self.rank}: give 1 or more")
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise BadInput(f"the alpha of LoRA is {self.alpha}: give a finite number above 0")
        if not 0 <= self.dropout < 1:
            raise BadInput(
                f"the dropout of LoRA is {self.dropout}: give a number from 0 up, below 1"
            )


def add_adapters(network: nn.Module, settings: LoraSettings) -> None:
    """Put adapters on all linear layers but the output layer, and freeze everything else."""
    from torch import nn

    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise MissingExtra("peft, which LoRA needs,", "lora") from None
    output = getattr(network, "get_output_embeddings", lambda: None)()
    targets = [
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear) and module is not output
    ]
    inject_adapter_in_model(
        LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            lora_dropout=settings.dropout,
            target_modules=targets,
        ),
        network,
    )


def split_adapters(
    state: Mapping[str, Tensor], settings: LoraSettings
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What saved adapters add to each weight, alpha / rank * B A, and the tensors beside them.

    Added to the weights, they are the same function in fewer products, and need nothing of peft.
    """
    changes: dict[str, Tensor] = {}
    rest: dict[str, Tensor] = {}
    for name, tensor in state.items():
        module, is_adapter, factor = name.partition(".lora_")
        if not is_adapter:
            rest[name] = tensor
        elif factor.startswith("A."):
            other = state[f"{module}.lora_B.{factor.removeprefix('A.')}"]
            scale = settings.alpha / settings.rank
            changes[f"{module}.weight"] = scale * other.float() @ tensor.float()
    return changes, rest
