"""Folders of models: what is in them, who reads them, and how they go to the hub."""

import base64
import http.server
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from transformers import BartConfig, BartForConditionalGeneration

import polyphrase
from polyphrase.api import load
from polyphrase.errors import BadInput
from polyphrase.latent.config import LatentConfig
from polyphrase.models.card import model_card
from polyphrase.models.latent_seq2seq import LatentSeq2Seq

FILES = {
    *("config.json", "generation_config.json", "model.safetensors", "README.md"),
    *("tokenizer.json", "tokenizer_config.json"),
}
TEXT = "how do i learn music ?"


def test_a_folder_holds_no_pickle_and_no_path_of_the_machine(
    tiny_model: Path, tiny_backbone: Path, tmp_path: Path
) -> None:
    load(tiny_model, "cpu").save(tmp_path / "copy")  # a second time: it knows its first folder
    for folder in (tiny_model, tmp_path / "copy"):
        assert {path.name for path in folder.iterdir()} == FILES
        for path in folder.iterdir():
            content = path.read_bytes()
            assert not content.startswith((b"PK", b"\x80")), "what torch.save or pickle begin with"
            for place in (tiny_model, tiny_backbone, tmp_path, Path.home()):
                assert str(place).encode() not in content


def test_a_backbone_keeps_its_name_if_it_has_one() -> None:
    config = LatentSeq2Seq.from_backbone("starter").config
    assert config.backbone["_name_or_path"] == "starter"


def test_an_encoder_and_a_decoder_name_no_path_either(tmp_path: Path) -> None:
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 20}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = BartConfig(**sizes, **heads, encoder_ffn_dim=8, decoder_ffn_dim=8)
    BartForConditionalGeneration(config).save_pretrained(tmp_path / "bart")
    model = LatentSeq2Seq.from_backbone(str(tmp_path / "bart"), LatentConfig())
    model.save_pretrained(tmp_path / "out")
    assert str(tmp_path) not in (tmp_path / "out" / "config.json").read_text()


@pytest.mark.parametrize("name", ["paraphraser"])
def test_the_embedded_folder_names_no_path(name: str) -> None:
    folder = Path(polyphrase.__file__).parent / "pretrained" / name
    config = json.loads((folder / "config.json").read_text())
    assert config["backbone"]["_name_or_path"] == config["base"] == "starter"


FRESH = """
import sys, polyphrase
assert not {"torch", "transformers"} & set(sys.modules)
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
batch = tokenizer(sys.argv[2], return_tensors="pt")
ids = model.generate(**batch, max_new_tokens=12, num_beams=3, do_sample=False)
print(type(model).__name__, AutoConfig.from_pretrained(sys.argv[1]).latent["prior"])
print(tokenizer.decode(ids[0], skip_special_tokens=True))
"""


def test_a_fresh_process_reads_a_folder_with_the_auto_classes(tiny_model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FRESH, tiny_model, TEXT], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    kind, text = done.stdout.splitlines()
    assert kind == "LatentSeq2Seq gp"
    search = load(tiny_model, "cpu").search(3, 0.0, beams=3, max_length=12)
    at_mean = load(tiny_model, "cpu", "float32").generate([TEXT], n=3, spread=0.0, search=search)
    assert text in at_mean[0]


def harmed(tiny_model: Path, folder: Path, name: str, keep: int) -> Path:
    shutil.copytree(tiny_model, folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:keep])
    return folder


@pytest.mark.parametrize("keep", [0, 4, 3000, -1])
def test_weights_cut_short_are_one_sentence(tiny_model: Path, tmp_path: Path, keep: int) -> None:
    folder = harmed(tiny_model, tmp_path / "cut", "model.safetensors", keep)
    with pytest.raises(BadInput, match=r"is damaged or was cut short .*: copy or train the model"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("config.json", "cannot be read as a model: It looks like the config file"),
        ("generation_config.json", "cannot be read as a model: It looks like the config file"),
        ("tokenizer.json", "cannot be read as a model: "),
    ],
)
def test_descriptions_cut_short_are_one_sentence(
    tiny_model: Path, tmp_path: Path, name: str, sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        load(harmed(tiny_model, tmp_path / "cut", name, 40))


def test_what_is_missing_is_named(tiny_model: Path, tmp_path: Path) -> None:
    for names, sentence in (
        (("model.safetensors",), "is not a saved model: it has no model.safetensors"),
        (("tokenizer.json", "tokenizer_config.json"), "has no tokenizer: save the model's"),
        (("config.json",), "is not a model folder: it has no config.json"),
    ):
        folder = tmp_path / names[0]
        shutil.copytree(tiny_model, folder)
        for name in names:
            (folder / name).unlink()
        with pytest.raises(BadInput, match=sentence):
            load(folder)


def test_weights_of_another_model_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "swapped"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "latent": None}))
    with pytest.raises(BadInput, match=r"does not fit its config\.json .*: was one of them"):
        load(folder)


def test_the_card_says_what_the_model_is(tiny_model: Path, tiny_backbone: Path) -> None:
    card = (tiny_model / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: polyphrase\npipeline_tag: text2text-generation\n")
    assert "an encoder-decoder with a Gaussian-process prior and a correlated posterior" in card
    assert f"written by polyphrase {polyphrase.__version__}." in card
    settings = json.loads(card.partition("```json\n")[2].partition("```")[0])
    assert settings == json.loads((tiny_model / "config.json").read_text())["latent"]
    plain = LatentSeq2Seq.from_backbone(str(tiny_backbone))
    assert "a deterministic encoder-decoder (no latent)" in model_card(plain.config)
    plain.config.base = str(tiny_backbone)
    assert "base_model" not in model_card(plain.config), "the hub knows no folders of ours"
    plain.config.base = "google-t5/t5-small"
    assert "\nbase_model: google-t5/t5-small\n" in model_card(plain.config)
    assert "the rest is `google-t5/t5-small`" in model_card(plain.config)


class Hub(http.server.BaseHTTPRequestHandler):
    """The hub's answers to who makes a repository and commits files to it."""

    asked: list[tuple[str, str]]
    files: dict[str, bytes]
    cards: list[dict[str, object]]

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.asked.append((self.path, str(self.headers.get("Authorization"))))
        if self.path == "/api/repos/create":
            name = json.loads(body)["name"]
            self.answer({"url": f"{self.address}/me/{name}", "name": f"me/{name}", "id": "1"})
        elif self.path == "/api/validate-yaml":
            head = json.loads(body)["content"].split("---\n")[1]
            self.cards.append(yaml.safe_load(head))
            self.answer({"warnings": [], "errors": []})
        elif self.path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            modes = [{"path": f["path"], "uploadMode": "regular"} for f in files]
            self.answer({"files": [{**mode, "shouldIgnore": False} for mode in modes]})
        elif self.path.endswith("/commit/main"):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.files[line["value"]["path"]] = content
            url = f"{self.address}/me/tiny/commit/abc"
            self.answer({"commitUrl": url, "commitOid": "abc", "success": True})
        else:
            self.send_error(404)

    def do_GET(self) -> None:
        self.asked.append((self.path, ""))
        self.send_error(404)

    do_HEAD = do_GET

    @property
    def address(self) -> str:
        return f"http://{self.headers['Host']}"

    def answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub() -> Iterator[tuple[type[Hub], str]]:
    """A hub on this machine: what it was asked and given, and its address."""
    kind = type("FreshHub", (Hub,), {"asked": [], "files": {}, "cards": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield kind, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


AtHub = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def at_hub(monkeypatch: pytest.MonkeyPatch) -> AtHub:
    def run(code: str, address: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
        for name in ("HF_HUB_OFFLINE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.lower(), raising=False)
        monkeypatch.setenv("HF_ENDPOINT", address)
        call = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(call, capture_output=True, text=True)

    return run


PUSH = """
import sys, polyphrase
rewriter = polyphrase.load(sys.argv[1], "cpu")
print(rewriter.push_to_hub("tiny", private=True, token="hf_secret"))
rewriter.model.push_to_hub("tiny", token="hf_secret")
"""


def test_a_model_goes_to_the_hub_with_all_its_files(
    hub: tuple[type[Hub], str], tiny_model: Path, at_hub: AtHub, tmp_path: Path
) -> None:
    server, address = hub
    done = at_hub(PUSH, address, tiny_model)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{address}/me/tiny/commit/abc\n"
    assert {path for path in server.files if path != ".gitattributes"} == FILES
    assert server.files["README.md"] == (tiny_model / "README.md").read_bytes()
    assert server.files["model.safetensors"] == (tiny_model / "model.safetensors").read_bytes()
    assert [token for path, token in server.asked if path.endswith("/commit/main")] == [
        "Bearer hf_secret"
    ] * 2
    for name, content in server.files.items():
        (tmp_path / name).write_bytes(content)
    assert [card["library_name"] for card in server.cards] == ["polyphrase"] * 2
    again = load(tmp_path, "cpu").generate([TEXT], n=3)
    assert again == load(tiny_model, "cpu").generate([TEXT], n=3)


def test_a_hub_that_refuses_is_one_sentence(
    hub: tuple[type[Hub], str], tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, address = hub
    monkeypatch.setattr(server, "do_POST", lambda self: self.send_error(401, "who are you"))
    monkeypatch.setattr("huggingface_hub.hf_api.ENDPOINT", address, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    with pytest.raises(BadInput, match=r"^tiny: the hub did not take the model \(.*401.*hf auth"):
        load(tiny_model, "cpu").push_to_hub("tiny", token="hf_secret")
