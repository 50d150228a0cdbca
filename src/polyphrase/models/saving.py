"""A model as a folder: `config.json`, `model.safetensors`, generation config, model card."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (  # type: ignore[attr-defined] # its HTTP client's own error
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
)
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from ..backbones.backbone import loading
from ..errors import BadInput
from ..files import disk_errors, whole_file, write_text
from .card import model_card

if TYPE_CHECKING:
    from transformers import PretrainedConfig

WEIGHTS = "model.safetensors"


class SavedModel(PreTrainedModel):
    """A `PreTrainedModel` that saves and loads itself.

    Our own, because a folder may hold only what was trained (`config.base` names the rest), weights
    are tied or not as they were when saved, and a file cut short is one sentence to the user.
    Nothing is ever unpickled.
    """

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        state_dict: dict[str, Tensor] | None = None,
        push_to_hub: bool = False,
        **kwargs: Any,
    ) -> None:
        """Write the folder that `from_pretrained` reads; each file whole or not at all."""
        folder = Path(save_directory)
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.config.architectures = [type(self).__name__]
        state = self.state_dict() if state_dict is None else state_dict
        with whole_file(folder / WEIGHTS) as temporary:
            save_file(self._kept(state), temporary, metadata={"format": "pt"})
        with disk_errors(folder):
            self.config.save_pretrained(folder)
            # Marked as made from the model's configuration, it would be read without our own keys.
            self.generation_config._from_model_config = False
            self.generation_config.save_pretrained(folder)
        write_text(folder / "README.md", model_card(self.config))
        if push_to_hub:
            kwargs.pop("max_shard_size", None)
            self.push_to_hub(kwargs.pop("repo_id", folder.name), **kwargs)

    def push_to_hub(self, repo_id: str, **kwargs: Any) -> str:
        """Save to a repository on the hub; `Rewriter.push_to_hub` sends the vocabulary as well.

        Args:
            repo_id: the repository; it is made if it is not there.
            **kwargs: see `push`.

        Returns:
            The address of the commit.
        """
        return push(self.save_pretrained, repo_id, **kwargs)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        *model_args: Any,
        config: PretrainedConfig | None = None,
        dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> Self:
        """Read a folder, or a hub repository, that `save_pretrained` wrote.

        Args:
            pretrained_model_name_or_path: the folder, or a name on the hub.
            *model_args: none; here because the auto classes pass it.
            config: the configuration, when it has been read already.
            dtype: the number format of the weights.
            **kwargs: `kernel`, a gpytorch kernel that the configuration could not describe; and
                `revision`, `token` and `cache_dir` for the hub.
        """
        folder = local_folder(pretrained_model_name_or_path, kwargs)
        if config is None:
            config = cls.config_class.from_pretrained(folder)
        extra = {"kernel": kwargs["kernel"]} if kwargs.get("kernel") is not None else {}
        with no_init_weights():
            model = cls.from_config_and_base(config, **extra)
        state = read_weights(folder / WEIGHTS)
        assign(model, state, partial=model._is_partial(), where=folder / WEIGHTS)
        model.read_generation_config(folder)
        if dtype is not None:
            model.to(dtype)
        return model.eval()

    def read_generation_config(self, folder: Path) -> None:
        """Take over the generation settings of a folder, if it has any."""
        if (folder / "generation_config.json").is_file():
            with loading(str(folder)):
                self.generation_config = GenerationConfig.from_pretrained(folder)

    def _is_partial(self) -> bool:
        return bool(getattr(self.config, "base", None))

    @classmethod
    def from_config_and_base(cls, config: PretrainedConfig, **kwargs: Any) -> Self:
        """The model that the weights are read into; a system with a `base` brings its weights."""
        return cls(config, **kwargs)

    def _kept(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """What goes into the file: shared tensors once, and only what was trained if partial."""
        trained = {name for name, weight in self.named_parameters() if weight.requires_grad}
        buffers = {name for name, _ in self.named_buffers()}
        kept: dict[str, Tensor] = {}
        seen: set[tuple[int, torch.Size]] = set()
        for name, tensor in state.items():
            if self._is_partial() and name not in trained and name not in buffers:
                continue
            place = (tensor.data_ptr(), tensor.shape)
            if tensor.numel() and place in seen:
                continue
            seen.add(place)
            kept[name] = tensor.detach().contiguous()
        return kept


def push(
    save: Callable[[Path], None],
    name: str,
    *,
    private: bool | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    commit_description: str | None = None,
) -> str:
    """Send what `save` writes into a folder to a repository on the hub, as one commit.

    transformers' own would put a model card of its template in the place of ours.
    """
    hub = HfApi()
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder))
        try:
            made = hub.create_repo(name, private=private, token=token, exist_ok=True)
            commit = hub.upload_folder(
                repo_id=made.repo_id,
                folder_path=folder,
                token=token,
                revision=revision,
                create_pr=create_pr,
                commit_message=commit_message or "Upload a polyphrase model",
                commit_description=commit_description,
            )
        except (HTTPError, HFValidationError, OSError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise BadInput(
                f"{name}: the hub did not take the model ({reason}): check the name, the network, "
                "and that `hf auth login` was done"
            ) from error
    return str(commit.commit_url)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    if not path.is_file():
        raise BadInput(f"{path.parent} is not a saved model: it has no {path.name}")
    try:
        return load_file(path)
    except (SafetensorError, ValueError) as error:
        raise BadInput(
            f"{path} is damaged or was cut short ({error}): copy or train the model again"
        ) from None


def assign(model: nn.Module, state: dict[str, Tensor], partial: bool, where: Path) -> None:
    """Put the tensors into the model; weights that were saved once stay shared."""
    shared: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        shared.setdefault(id(weight), []).append(name)
    found = model.load_state_dict(state, strict=False, assign=not partial)
    missing = set(found.missing_keys)
    for names in shared.values():
        present = [name for name in names if name not in missing]
        if present and len(present) < len(names):
            weight = model.get_parameter(present[0])
            for name in set(names) & missing:
                owner, _, leaf = name.rpartition(".")
                setattr(model.get_submodule(owner), leaf, weight)
                missing.discard(name)
    if partial:
        trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
        missing &= trained
    if missing or found.unexpected_keys:
        first = sorted(missing)[:1] or sorted(found.unexpected_keys)[:1]
        raise BadInput(
            f"{where} does not fit its config.json ({len(missing)} weights missing, "
            f"{len(found.unexpected_keys)} unknown, such as {first[0]}): was one of them replaced?"
        )


def local_folder(name: str | os.PathLike[str], kwargs: Mapping[str, Any]) -> Path:
    """A folder as it is, or the copy of a repository on the hub."""
    path = Path(name)
    if path.is_dir():
        return path
    hub = {key: kwargs[key] for key in ("revision", "token", "cache_dir") if kwargs.get(key)}
    try:
        return Path(snapshot_download(str(name), **hub))
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError):
        raise BadInput(
            f"{name} is neither a folder with a saved model nor a model that the hub answers for"
        ) from None
