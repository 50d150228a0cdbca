"""Diverse beam search against the library that had it last."""

import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration

from polyphrase.backbones.huggingface import HuggingFaceBackbone
from polyphrase.backbones.memory import Memory
from polyphrase.data.codec import IGNORED
from polyphrase.decoding.search import run_search
from polyphrase.decoding.settings import Search
from polyphrase.models.config import PolyphraseConfig
from polyphrase.models.latent_seq2seq import LatentSeq2Seq

GOLDEN = json.loads((Path(__file__).parent / "diverse_beam.json").read_text())["runs"]
SOURCES = {
    "input_ids": torch.tensor(
        [[5, 9, 14, 1, 0, 0], [30, 31, 7, 7, 40, 1], [22, 1, 0, 0, 0, 0], [11, 12, 13, 14, 1, 0]]
    ),
    "attention_mask": torch.tensor([[1] * n + [0] * (6 - n) for n in (4, 6, 2, 5)]),
}
FIELDS = ("beams", "groups", "diversity", "length_penalty", "max_length", "min_length")


def weight(name: str, like: Tensor) -> Tensor:
    """Weights that no library's initialisation has a part in: an integer hash of their places."""
    places = torch.arange(like.numel())
    bits = ((places + 1) * 2654435761 + (zlib.crc32(name.encode()) + 1) * 40503 * 65537) % 2**32
    bits = (bits ^ (bits >> 15)) * 2246822519 % 2**32
    value = (bits ^ (bits >> 13)).double() % 2**32 / 2**32 - 0.5
    value = value.reshape(like.shape)
    if name.endswith("layer_norm.weight"):
        return 1 + value
    if name == "lm_head.weight":
        value = value * 1.5
        value[1] *= 3  # the end: likely here, unlikely there
    return value


@cache
def model() -> LatentSeq2Seq:
    config = T5Config(
        vocab_size=48, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=2,
        feed_forward_proj="gated-gelu", pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
        relative_attention_num_buckets=8,
    )  # fmt: skip
    config.tie_word_embeddings = config.scale_decoder_outputs = False
    network = T5ForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            one_table = name.endswith("embed_tokens.weight")  # of encoder and decoder, as it was
            parameter.copy_(weight("shared.weight" if one_table else name, parameter))
    return LatentSeq2Seq(PolyphraseConfig(backbone=config.to_dict()), network=network).eval()


@torch.inference_mode()
def searched(search: Search) -> tuple[list[list[list[int]]], Tensor, Tensor]:
    """The hypotheses of each source, cut after their end, their scores and log p."""
    system = model()
    memory = system.encode(SOURCES)
    found = run_search(
        system.executor(memory), len(memory), search, system.rules, 0, 0, torch.device("cpu")
    )
    tokens = [
        [words[: words.index(1) + 1] if 1 in words else words for words in source]
        for source in found.tokens.tolist()
    ]
    return tokens, found.score, found.log_probability


@pytest.mark.parametrize("run", GOLDEN, ids=lambda run: "-".join(str(run[name]) for name in FIELDS))
def test_hypotheses_and_scores_are_those_of_the_library_that_had_it(run: dict[str, Any]) -> None:
    search = Search(method="diverse-beam", **{name: run[name] for name in FIELDS})
    tokens, score, _ = searched(search)
    for source, expected in enumerate(run["hypotheses"]):
        # The same, but for their order: theirs is by score over all groups.
        ours = zip(score[source].tolist(), tokens[source], strict=True)
        ordered = sorted(ours, key=lambda pair: (-round(pair[0], 4), pair[1]))
        theirs = zip(run["scores"][source], expected, strict=True)
        golden = sorted(theirs, key=lambda pair: (-round(pair[0], 4), pair[1]))
        assert sorted(words for _, words in ordered) == sorted(words for _, words in golden)
        for (one, _), (other, _) in zip(ordered, golden, strict=True):
            assert one == pytest.approx(other, abs=2e-4)


@torch.inference_mode()
def test_what_was_paid_for_variety_is_no_part_of_log_p() -> None:
    search = Search(method="diverse-beam", beams=6, groups=3, diversity=0.3, max_length=8)
    tokens, score, log_p = searched(search)
    backbone = model().backbone
    assert isinstance(backbone, HuggingFaceBackbone)
    memory = model().encode(SOURCES)
    paid = 0
    for source in range(4):
        for rank, words in enumerate(tokens[source]):
            row = torch.tensor([source])
            labels = torch.tensor([words])
            assert IGNORED not in words
            one = Memory(memory.states[row], memory.mask[row])
            exact = -float(backbone.nll(one, labels))
            assert float(log_p[source, rank]) == pytest.approx(exact, abs=1e-4)
            paid += float(score[source, rank]) * len(words) < exact - 0.1
    assert paid > 1


def test_groups_without_a_price_agree_and_with_one_differ() -> None:
    free = Search(method="diverse-beam", beams=4, groups=4, diversity=0.0, max_length=7)
    tokens, score, log_p = searched(free)
    greedy, *_ = searched(Search(beams=1, max_length=7))
    for source in range(4):
        assert tokens[source] == greedy[source] * 4
    torch.testing.assert_close(score, log_p / torch.tensor([[len(t[0])] for t in tokens]))
    dear, *_ = searched(
        Search(method="diverse-beam", beams=4, groups=4, diversity=1e3, max_length=7)
    )
    for source in range(4):
        assert len({words[0] for words in dear[source]} - {1}) == len(
            [words[0] for words in dear[source] if words[0] != 1]
        )
