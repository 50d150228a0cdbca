"""Low-rank adapters (LoRA, Hu et al. 2022) on a backbone, through peft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Size of the adapters: W + alpha / rank * B A, with A `[rank, in]` and B `[out, rank]`."""

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise BadInput(f"the rank of LoRA is {self.rank}: give 1 or more")


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


def merge_adapters(network: nn.Module) -> None:
    """Add the adapters' products to the weights they adapt and drop them: same function, faster."""
    from peft.tuners.lora import LoraLayer

    for name, module in list(network.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge(safe_merge=False)  # looking for infinities takes longer than the merge
            parent = network.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], module.get_base_layer())
