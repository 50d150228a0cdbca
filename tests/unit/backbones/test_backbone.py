import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import GPT2Config, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration
from transformers.utils import logging as transformers_logging

from polyphrase.backbones import backbone
from polyphrase.backbones.backbone import load_config, load_seq2seq, load_tokenizer, resolve
from polyphrase.errors import BadInput


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny T5 with an output layer of its own, and a tokenizer of four words."""
    folder = tmp_path_factory.mktemp("whole")
    config = T5Config(
        vocab_size=16, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    model.lm_head = torch.nn.Linear(8, 16, bias=False)
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2, "a": 3}, "<unk>"))
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "model"))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_names_that_are_no_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(backbone, "starter_folder", lambda: tmp_path / "starter")
    assert resolve("starter") == str(tmp_path / "starter")
    for name in ("google-t5/t5-base", "facebook/bart-base", "t5-small"):
        assert resolve(name) == name


def test_a_folder_by_any_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    for name in (str(folder), "model", "./model/", "~/model"):
        assert resolve(name) == str(folder)


def test_a_folder_loads(folder: Path) -> None:
    model = load_seq2seq(str(folder))
    assert isinstance(model, T5ForConditionalGeneration)
    assert load_config(str(folder)).d_model == 8
    assert load_tokenizer(str(folder)).convert_tokens_to_ids("a") == 3


def test_options_reach_from_pretrained(folder: Path) -> None:
    assert load_seq2seq(str(folder), dtype=torch.bfloat16).dtype == torch.bfloat16


def test_a_model_from_this_disk_loads_without_noise(
    folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("transformers")
    propagated, log.propagate = log.propagate, True
    try:
        with caplog.at_level(logging.WARNING):
            load_seq2seq(str(folder))
            assert caplog.messages == []
            assert capfd.readouterr().err == ""
            T5ForConditionalGeneration.from_pretrained(folder)  # and it is heard again elsewhere
            assert "so we will NOT tie them" in caplog.text
    finally:
        log.propagate = propagated
    assert transformers_logging.is_progress_bar_enabled()


def edit_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * 2 // 3])


def remove_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


def become_gpt2(folder: Path) -> None:
    (folder / "config.json").write_text(GPT2Config().to_json_string())


@pytest.mark.parametrize(
    ("load", "harm", "sentence"),
    [
        (load_config, lambda at: (at / "config.json").unlink(),
         "{} is not a model folder: it has no config.json"),
        (load_config, lambda at: (at / "config.json").write_text("{"),
         "{} cannot be read as a model: It looks like the config file"),
        (load_config, lambda at: (at / "config.json").write_text("{}"),
         "{} cannot be read as a model: Unrecognized model"),
        (load_seq2seq, become_gpt2,
         "{} is not a sequence-to-sequence model: give an encoder-decoder such as T5"),
        (load_seq2seq, lambda at: (at / "model.safetensors").unlink(),
         "{} has no model.safetensors, and other formats of weights are not read"),
        (load_seq2seq, lambda at: (at / "model.safetensors").rename(at / "pytorch_model.bin"),
         "{} has no model.safetensors, and other formats of weights are not read"),
        (load_seq2seq, lambda at: cut(at / "model.safetensors"),
         "{} cannot be read as a model: Error while deserializing header"),
        (load_seq2seq, lambda at: edit_config(at, d_ff=8),
         "{}: the weights do not fit its config.json; save the model again"),
        (load_tokenizer, remove_tokenizer,
         "{} has no tokenizer: save the model's tokenizer into the folder"),
        (load_tokenizer, lambda at: cut(at / "tokenizer.json"),
         "{} cannot be read as a model: "),
    ],
)  # fmt: skip
def test_a_harmed_folder_is_one_sentence(
    folder: Path, load: Callable[[str], Any], harm: Callable[[Path], Any], sentence: str
) -> None:
    harm(folder)
    with pytest.raises(BadInput) as refused:
        load(str(folder))
    assert str(refused.value).startswith(sentence.format(folder))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["./not/here", "/not/here", "a/b/c", "no such model", "~/x/y"])
def test_a_path_where_nothing_lies(name: str) -> None:
    with pytest.raises(
        BadInput, match="no such folder; give a model folder, a hub id or 'starter'"
    ):
        resolve(name)


def test_an_empty_name_is_not_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(BadInput, match="the name of a model is empty; give a folder, a hub id"):
        resolve("")


def test_a_file_is_no_folder(folder: Path) -> None:
    with pytest.raises(BadInput, match="is a file: give the folder that the model was saved to"):
        resolve(str(folder / "model.safetensors"))


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("load", [load_config, load_tokenizer, load_seq2seq])
def test_the_hub_out_of_reach_is_one_sentence(load: Callable[[str], Any]) -> None:
    with pytest.raises(BadInput) as refused:
        load("polyphrase/never-was-there")
    assert str(refused.value) == (
        "polyphrase/never-was-there: neither a folder here nor to be had from the hub; "
        "check the name and the network, or use 'starter'"
    )


def test_a_fault_of_ours_is_no_bad_input() -> None:
    with pytest.raises(KeyError), backbone.loading("starter"):
        raise KeyError("ours")
