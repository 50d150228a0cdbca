"""The converted starter against the ONNX pair that it comes from.

The pair rounds the input of every product to 8 bits, the converted model does not. So it is
compared twice: with the pair whose rounding is taken out of the graphs, where every logit and every
greedy output must be the same; and with the pair as it is, where the same rounding is put into the
model. (As they are, the two give the same greedy output on 3 of these 24 texts: so far does the
pair's rounding lead it away from its own weights.)
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import traceforge_title_model
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from polyphrase.backbones import starter
from polyphrase.errors import BadInput

TEXTS = [
    "translate English to German: The house is wonderful.",
    "translate English to French: I would like a cup of coffee, please.",
    "translate German to English: Ich habe heute keine Zeit.",
    "Translate to Spanish: Where is the train station?",
    "Answer the question: What is the capital of France?",
    "How many days are there in a week?",
    "Who wrote the play Romeo and Juliet?",
    "Which is larger, an elephant or a mouse?",
    "Paraphrase: How do I learn to play the guitar?",
    "Rewrite the sentence: She was not able to attend the meeting because of the storm.",
    "Simplify: The committee reached a unanimous decision subsequent to lengthy deliberation.",
    "summarize: The quick brown fox jumped over the lazy dog while the cat slept in the sun.",
    "Write a title: Fix the parser so that empty lines are skipped.",
    "Correct the grammar: He go to school every days.",
    "Complete the sentence: The sun rises in the",
    "Is this review positive or negative? The film was dull and far too long.",
    "Premise: A man plays a guitar. Hypothesis: A man makes music. Is the hypothesis entailed?",
    "Tell me a short story about a dragon who is afraid of fire.",
    "The weather is nice today.",
    "What is the best way to lose weight?",
    "A young girl in a red dress runs across the street with two dogs.",
    "Police have arrested two men after a robbery at a bank in London.",
    "x",
    "Hello, World! 12345 & <tags> — “quotes”.",
]
STEPS = 16

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]


class OnnxPair:
    """The encoder and the decoder graph, run by onnxruntime."""

    def __init__(self, *, rounded: bool) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        # Without it, a processor that has no int8 dot product saturates sums at 16 bits.
        options.add_session_config_entry("session.x64quantprecision", "1")
        folder = traceforge_title_model.span_dir()
        self._encoder, self._decoder = (
            onnxruntime.InferenceSession(
                (
                    onnx.load(folder / name) if rounded else unrounded(folder / name)
                ).SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
            )
            for name in ("encoder.onnx", "decoder.onnx")
        )

    def encode(self, source: Ids) -> Logits:
        return self._encoder.run(
            None, {"input_ids": source, "attention_mask": np.ones_like(source)}
        )[0]

    def decode(self, memory: Logits, prefix: Ids) -> Logits:
        """The logits [1, N, V] after every token of a prefix [1, N]."""
        mask = np.ones(memory.shape[:2], np.int64)
        inputs = {"encoder_hidden_states": memory, "encoder_attention_mask": mask}
        return self._decoder.run(None, {"input_ids": prefix, **inputs})[0]

    def greedy(self, source: Ids) -> Ids:
        memory, prefix = self.encode(source), np.zeros((1, 1), np.int64)
        while prefix.shape[1] <= STEPS and prefix[0, -1] != 1:
            word = self.decode(memory, prefix)[0, -1].argmax()
            prefix = np.append(prefix, [[word]], axis=1)
        return prefix


def unrounded(path: Path) -> onnx.ModelProto:
    """The graph with float32 inputs where it rounds them to 8 bits; its scales stay its own."""
    model = onnx.load(path)
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        if node.op_type == "DynamicQuantizeLinear":
            one = numpy_helper.from_array(np.float32(1.0))
            nodes += [
                helper.make_node("Identity", [node.input[0]], [node.output[0]]),
                helper.make_node("Constant", [], [node.output[1]], value=one),
            ]
        elif node.op_type == "MatMulInteger":
            values, weight, _, zero = node.input
            centred = tensors[weight].astype(np.float32) - tensors[zero].astype(np.float32)
            name = f"{weight}_centred"
            model.graph.initializer.append(numpy_helper.from_array(centred, name))
            nodes.append(helper.make_node("MatMul", [values, name], list(node.output)))
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def round_to_8_bits(_: torch.nn.Module, inputs: tuple[torch.Tensor]) -> torch.Tensor:
    """DynamicQuantizeLinear and back: scale and zero point from the range, zero included."""
    (x,) = inputs
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = (high - low) / 255
    zero = torch.round(-low / scale)
    return ((torch.round(x / scale) + zero).clamp(0, 255) - zero) * scale


class Greedy(NamedTuple):
    """A greedy run of a pair, and its logits when it reads its own output."""

    source: Ids
    output: Ids
    logits: Logits


def greedy_runs(tokenizer: Any, *, rounded: bool) -> list[Greedy]:
    pair, runs = OnnxPair(rounded=rounded), []
    for text in TEXTS:
        source = tokenizer(text, return_tensors="np").input_ids.astype(np.int64)
        output = pair.greedy(source)
        runs.append(Greedy(source, output, pair.decode(pair.encode(source), output[:, :-1])))
    return runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The starter, converted afresh by today's code."""
    root = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLYPHRASE_CACHE", str(root))
        yield starter.starter_folder()
    shutil.rmtree(root)  # pytest would keep three runs of 300 MB


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return AutoModelForSeq2SeqLM.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def exact(tokenizer: Any) -> list[Greedy]:
    return greedy_runs(tokenizer, rounded=False)


@torch.no_grad()
def logits_of(model: Any, run: Greedy) -> Logits:
    return model(
        input_ids=torch.from_numpy(run.source),
        decoder_input_ids=torch.from_numpy(run.output[:, :-1]),
    ).logits.numpy()


def largest_error(model: Any, runs: list[Greedy]) -> float:
    return max(float(np.abs(logits_of(model, run) - run.logits).max()) for run in runs)


def exchange(one: torch.nn.Module, other: torch.nn.Module) -> None:
    one.weight, other.weight = other.weight, one.weight


def test_every_logit_is_that_of_the_graphs_without_rounding(
    model: Any, exact: list[Greedy]
) -> None:
    assert largest_error(model, exact) < 1e-3  # 1e-4 measured, of logits up to 97


def test_every_greedy_output_is_that_of_the_graphs_without_rounding(
    model: Any, exact: list[Greedy]
) -> None:
    for run in exact:
        output = model.generate(torch.from_numpy(run.source), max_new_tokens=STEPS)
        assert output.tolist() == run.output.tolist()


@pytest.mark.parametrize("layer", range(8))
def test_one_exchanged_pair_of_weights_shows(model: Any, exact: list[Greedy], layer: int) -> None:
    encoder, decoder = model.encoder.block[layer].layer, model.decoder.block[layer].layer
    pairs = [
        (encoder[0].SelfAttention.k, encoder[0].SelfAttention.v),
        (encoder[1].DenseReluDense.wi_0, encoder[1].DenseReluDense.wi_1),
        (decoder[0].SelfAttention.k, decoder[0].SelfAttention.v),
        (decoder[1].EncDecAttention.k, decoder[1].EncDecAttention.v),
        (decoder[1].EncDecAttention.q, decoder[0].SelfAttention.q),
        (decoder[2].DenseReluDense.wi_0, decoder[2].DenseReluDense.wi_1),
        (decoder[0].layer_norm, decoder[1].layer_norm),
    ]
    for one, other in pairs:
        exchange(one, other)
        try:
            assert largest_error(model, exact[:1]) > 0.1
        finally:
            exchange(one, other)


class Agreement(NamedTuple):
    """How far a model agrees with a pair, step by step."""

    correlation: float
    argmax: float


def agreement(model: Any, runs: list[Greedy]) -> Agreement:
    correlations, same = [], []
    for run in runs:
        for ours, theirs in zip(logits_of(model, run)[0], run.logits[0], strict=True):
            correlations.append(np.corrcoef(ours, theirs)[0, 1])
            same.append(ours.argmax() == theirs.argmax())
    return Agreement(float(np.mean(correlations)), float(np.mean(same)))


def test_the_pair_as_it_is_differs_by_its_rounding_only(model: Any, tokenizer: Any) -> None:
    runs = greedy_runs(tokenizer, rounded=True)
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    hooks = [module.register_forward_pre_hook(round_to_8_bits) for module in linear]
    keys = model.decoder.block[7].layer[1].EncDecAttention
    try:
        right = agreement(model, runs)
        exchange(keys.k, keys.v)
        wrong = agreement(model, runs)
    finally:
        exchange(keys.k, keys.v)
        for hook in hooks:
            hook.remove()
    # Measured: 0.994 and 0.88. Where one value falls on the other side of a rounding step, all that
    # follows differs a little. With k and v of any one layer exchanged, at most 0.967 and 0.75.
    assert right.correlation > 0.985
    assert right.argmax > 0.84
    assert wrong.correlation < 0.97
    assert wrong.argmax < 0.80


def test_no_weight_is_missing_or_left_over(folder: Path) -> None:
    model, info = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values())
    assert model.num_parameters() == 76_961_152
    assert model.dtype == torch.float32
    assert model.lm_head.weight.data_ptr() != model.shared.weight.data_ptr()
    assert model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight


def test_outputs_stay_unscaled_after_saving_again(model: Any, folder: Path, tmp_path: Path) -> None:
    assert model.config.scale_decoder_outputs is False
    model.save_pretrained(tmp_path)
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert again.config.scale_decoder_outputs is False
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name
    (tmp_path / "model.safetensors").unlink()


@torch.no_grad()
def test_it_knows_english(model: Any, tokenizer: Any) -> None:
    source = tokenizer("How can I learn to play the guitar?", return_tensors="pt")
    losses = [
        float(model(**source, labels=tokenizer(target, return_tensors="pt").input_ids).loss)
        for target in ("How do I learn to play guitar?", "guitar? play learn to I do How")
    ]
    assert losses[0] < 2.5  # per token; log V is 10.4, and with scaled outputs it is 9 and more
    assert losses[1] > losses[0] + 2


def test_the_tokenizer_is_that_of_the_package(tokenizer: Any) -> None:
    from tokenizers import Tokenizer

    theirs = Tokenizer.from_file(str(traceforge_title_model.span_dir() / "tokenizer.json"))
    for text in TEXTS:
        assert tokenizer(text).input_ids == theirs.encode(text).ids
        assert tokenizer(text).input_ids[-1] == tokenizer.eos_token_id == 1
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, 2)
    assert tokenizer.convert_tokens_to_ids("<extra_id_0>") == 32099
    assert tokenizer.decode([32099, 8774, 1], skip_special_tokens=True) == "Hello"


def test_the_tokenizer_has_the_habits_of_t5(tokenizer: Any) -> None:
    assert tokenizer("  a \n b ").input_ids == tokenizer("a b").input_ids
    assert len(tokenizer("word " * 300).input_ids) == 301
    batch = tokenizer(["a", "a b c d"], padding=True)
    assert batch["input_ids"][0][-1] == tokenizer.pad_token_id
    assert batch["attention_mask"][0][-1] == 0


# The cache.


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("POLYPHRASE_CACHE", str(tmp_path))
    yield tmp_path
    shutil.rmtree(tmp_path)


def write_small(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.endswith(".lock"))


def start_conversion() -> "subprocess.Popen[str]":
    code = "from polyphrase.backbones.starter import starter_folder; print(starter_folder())"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once_both_get_the_whole_folder(cache: Path) -> None:
    processes = [start_conversion() for _ in range(2)]
    answers = [process.communicate()[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert answers == [str(starter.starter_path())] * 2
    assert starter.is_converted(starter.starter_path())
    assert names(cache) == [starter.starter_path().name]


def test_a_killed_process_leaves_nothing_that_is_taken_for_whole(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start_conversion()
    while not list(cache.glob(".starter-*.part-*/built/config.json")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not starter.starter_path().exists()
    assert len(names(cache)) == 1  # what it had begun

    monkeypatch.setattr(starter, "write_checkpoint", write_small)
    assert starter.is_converted(starter.starter_folder())
    assert names(cache) == [starter.starter_path().name]


def test_an_interrupt_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(folder: Path) -> None:
        write_small(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(starter, "write_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        starter.starter_folder()
    assert names(cache) == []


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: (folder / "model.safetensors").write_bytes(b"wei"),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / starter.MANIFEST).unlink(),
        lambda folder: (folder / starter.MANIFEST).write_text("{"),
        lambda folder: (folder / starter.MANIFEST).write_text("[]"),
        shutil.rmtree,
    ],
)
def test_a_broken_cache_is_built_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch, harm: Any
) -> None:
    monkeypatch.setattr(starter, "write_checkpoint", write_small)
    folder = starter.starter_folder()
    harm(folder)
    assert not starter.is_converted(folder)
    assert starter.starter_folder() == folder
    assert starter.is_converted(folder)
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert names(cache) == [folder.name]


def test_a_whole_cache_is_used_as_it_is(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter, "write_checkpoint", write_small)
    folder = starter.starter_folder()
    before = folder.stat().st_ino

    def never(_: Path) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(starter, "write_checkpoint", never)
    cache.chmod(0o500)  # a cache that others filled may be read-only
    try:
        assert starter.starter_folder().stat().st_ino == before
    finally:
        cache.chmod(0o700)


def test_a_full_disk_is_one_sentence(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_full_disk(folder: Path) -> None:
        (folder / "config.json").symlink_to("/dev/full")
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(starter, "write_checkpoint", on_a_full_disk)
    with pytest.raises(BadInput, match=r"no space left on the disk that holds .*starter"):
        starter.starter_folder()
    assert names(cache) == []


def test_a_cache_that_is_a_file_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").write_text("")
    monkeypatch.setenv("POLYPHRASE_CACHE", str(cache / "file"))
    with pytest.raises(BadInput, match=r"/file: "):
        starter.starter_folder()


def test_the_cache_is_in_the_home_folder_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLYPHRASE_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert starter.starter_path().parent == Path("/home/someone/.cache/polyphrase")
    monkeypatch.setenv("POLYPHRASE_CACHE", "~/cache")
    assert starter.starter_path().parent == Path("/home/someone/cache")


def test_importing_the_module_is_light() -> None:
    code = (
        "import sys, polyphrase.backbones.backbone;"
        "print(sorted({'torch', 'transformers', 'onnx', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == "[]\n"
