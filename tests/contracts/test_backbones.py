"""Every family answers to the same few calls, and to `generate` token by token."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from polyphrase.backbones.memory import Memory
from polyphrase.data.codec import IGNORED
from polyphrase.decoding.generate import generate
from polyphrase.decoding.search import run_search
from polyphrase.decoding.settings import Search
from polyphrase.models.config import PolyphraseConfig
from polyphrase.models.latent_seq2seq import LatentSeq2Seq

WORDS = 96
PAD, END = 1, 2


def t5(act: str, tied: bool, kind: Any = T5ForConditionalGeneration, config: Any = T5Config) -> Any:
    settings = config(
        vocab_size=WORDS, d_model=16, d_kv=5, d_ff=24, num_layers=2,
        num_heads=3, feed_forward_proj=act, pad_token_id=PAD, eos_token_id=END,
        decoder_start_token_id=PAD, initializer_factor=2.0,
    )  # fmt: skip
    settings.tie_word_embeddings = settings.scale_decoder_outputs = tied
    network = kind(settings)
    assert (network.lm_head.weight is network.shared.weight) == tied
    return network


def seq2seq(kind: Any, config: Any, **settings: Any) -> Any:
    network = kind(
        config(
            vocab_size=WORDS, d_model=16, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=2, decoder_attention_heads=4, encoder_ffn_dim=24,
            decoder_ffn_dim=20, max_position_embeddings=40, init_std=0.4, pad_token_id=PAD,
            eos_token_id=END, **settings,
        )
    )  # fmt: skip
    network.final_logits_bias[0, END] += 3
    return network


def bart() -> Any:
    return seq2seq(
        BartForConditionalGeneration,
        BartConfig,
        decoder_start_token_id=END,
        forced_eos_token_id=END,
    )


def mbart() -> Any:
    network = seq2seq(MBartForConditionalGeneration, MBartConfig, decoder_start_token_id=END)
    network.generation_config.forced_bos_token_id = 7  # a language
    network.generation_config.forced_eos_token_id = END
    return network


def marian() -> Any:
    network = seq2seq(MarianMTModel, MarianConfig, decoder_start_token_id=PAD, scale_embedding=True)
    network.generation_config.bad_words_ids = [[PAD]]
    network.generation_config.forced_eos_token_id = END
    with torch.no_grad():
        network.final_logits_bias[0, PAD] += 6  # the forbidden word is the likeliest
    return network


def bert_to_bert() -> Any:
    sizes = {
        "vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 24, "max_position_embeddings": 40, "initializer_range": 0.4,
    }  # fmt: skip
    decoder = BertConfig(**sizes, is_decoder=True, add_cross_attention=True)
    config = EncoderDecoderConfig.from_encoder_decoder_configs(BertConfig(**sizes), decoder)
    config.pad_token_id, config.eos_token_id, config.decoder_start_token_id = PAD, END, 5
    network = EncoderDecoderModel(config)
    network.generation_config.update(pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=5)
    return network


FAMILIES: dict[str, Callable[[], Any]] = {
    "t5": lambda: t5("relu", tied=True),
    "t5-untied": lambda: t5("relu", tied=False),
    "t5-gated": lambda: t5("gated-gelu", tied=False),
    "t5-gated-tied": lambda: t5("gated-gelu", tied=True),
    "mt5": lambda: t5("gated-gelu", False, MT5ForConditionalGeneration, MT5Config),
    "bart": bart,
    "mbart": mbart,
    "pegasus": lambda: seq2seq(
        PegasusForConditionalGeneration, PegasusConfig, decoder_start_token_id=PAD
    ),
    "marian": marian,
    "bert-to-bert": bert_to_bert,
}
families = pytest.mark.parametrize("family", FAMILIES)


@cache
def model(family: str) -> LatentSeq2Seq:
    """The deterministic model around a tiny random network, in float64."""
    torch.manual_seed(11)
    network = FAMILIES[family]().double().eval()
    with torch.no_grad():  # likely here and unlikely there: hypotheses of many lengths
        network.get_output_embeddings().weight[END] *= 3.5
    config = PolyphraseConfig(backbone=network.config.to_dict())
    return LatentSeq2Seq(config, network=network).eval()


def some_words(count: int, longest: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    drawn = (torch.randint(8, WORDS, (length,), generator=generator) for length in lengths)
    return [torch.cat([words, torch.tensor([END])]) for words in drawn]


def batch(sequences: list[Tensor], extra: int = 0) -> dict[str, Tensor]:
    ids = pad_sequence(sequences, batch_first=True, padding_value=PAD)
    ids = torch.nn.functional.pad(ids, (0, extra), value=PAD)
    lengths = torch.tensor([len(words) for words in sequences])
    mask = torch.arange(ids.shape[1])[None] < lengths[:, None]
    return {"input_ids": ids, "attention_mask": mask.long()}


def targets(sequences: list[Tensor], extra: int = 0) -> Tensor:
    labels = pad_sequence(sequences, batch_first=True, padding_value=IGNORED)
    return torch.nn.functional.pad(labels, (0, extra), value=IGNORED)


SOURCES = some_words(9, 9, seed=1)
TARGETS = some_words(9, 8, seed=2)


def step_by_step(system: LatentSeq2Seq, memory: Memory, labels: Tensor) -> Tensor:
    """-log p of each target, one word at a time through the executor."""
    executor = system.executor(memory)
    tokens, parents = torch.full((len(labels),), system.start_token), None
    total = memory.states.new_zeros(len(labels))
    for position in range(labels.shape[1]):
        log_p = executor.logits(executor.step(tokens, parents)).log_softmax(-1)
        real = labels[:, position] != IGNORED
        tokens = labels[:, position].where(real, PAD)
        total -= log_p.gather(1, tokens[:, None])[:, 0] * real
        parents = torch.arange(len(labels))
    return total


@families
@torch.inference_mode()
def test_nll_is_that_of_decoding_word_by_word(family: str) -> None:
    system = model(family)
    memory = system.encode(batch(SOURCES))
    labels = targets(TARGETS)
    found = system.nll(memory, labels)
    assert found.min() > 1
    expected = step_by_step(system, memory, labels)
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=1e-4)


@families
@torch.inference_mode()
def test_company_and_padding_change_no_nll(family: str) -> None:
    system = model(family)
    together = system.nll(system.encode(batch(SOURCES, extra=5)), targets(TARGETS, extra=4))
    alone = [
        system.nll(system.encode(batch([source])), targets([target]))
        for source, target in zip(SOURCES, TARGETS, strict=True)
    ]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-5, atol=1e-5)


def cut(tokens: list[int]) -> list[int]:
    """Up to the end, whatever stands after it."""
    return tokens[: tokens.index(END) + 1] if END in tokens else tokens


def ours(system: LatentSeq2Seq, search: Search) -> tuple[list[list[int]], Tensor]:
    memory = system.encode(batch(SOURCES))
    found = run_search(
        system.executor(memory), len(memory), search, system.rules, system.start_token,
        system.pad_token, torch.device("cpu"),
    )  # fmt: skip
    return [cut(tokens) for tokens in found.tokens.flatten(0, 1).tolist()], found.score.flatten()


def theirs(system: LatentSeq2Seq, search: Search) -> Any:
    return system.hugging_face.network.generate(
        **batch(SOURCES),
        do_sample=False,
        num_beams=search.width,
        num_return_sequences=search.width,
        length_penalty=search.length_penalty,
        max_new_tokens=search.max_length,
        min_new_tokens=search.min_length,
        return_dict_in_generate=True,
        output_scores=True,
    )


BEAMS = [
    Search(beams=4, max_length=10),
    Search(beams=2, max_length=7, length_penalty=0.0),
    Search(beams=5, max_length=12, length_penalty=0.6, min_length=4),
    Search(beams=3, max_length=9, length_penalty=1.2, min_length=1),
]


@families
@torch.inference_mode()
def test_every_hypothesis_of_beam_search_is_that_of_generate(family: str) -> None:
    system = model(family)
    lengths = set()
    for search in BEAMS:
        found, score = ours(system, search)
        expected = theirs(system, search)
        assert found == [cut(tokens[1:]) for tokens in expected.sequences.tolist()]
        torch.testing.assert_close(score, expected.sequences_scores, rtol=1e-4, atol=1e-5)
        lengths |= {len(tokens) - search.min_length for tokens in found}
    assert min(lengths) >= 1
    assert len(lengths) > 4  # ends come early and late


@families
@torch.inference_mode()
def test_greedy_is_that_of_generate(family: str) -> None:
    system = model(family)
    search = Search(method="greedy", max_length=9, min_length=1)
    found, _ = ours(system, search)
    assert found == [cut(tokens[1:]) for tokens in theirs(system, search).sequences.tolist()]
    one_beam, _ = ours(system, Search(beams=1, max_length=9, min_length=1))
    assert one_beam == found


@pytest.mark.parametrize(
    "search",
    [
        Search(beams=4, max_length=6, min_length=5),
        Search(method="diverse-beam", beams=4, groups=2, max_length=6, min_length=5),
        Search(method="greedy", max_length=6, min_length=5),
        Search(method="sample", temperature=3.0, max_length=6, min_length=5),
    ],
    ids=lambda search: search.method,
)
@pytest.mark.parametrize("family", ["bart", "mbart", "marian"])
def test_what_a_family_always_or_never_says(family: str, search: Search) -> None:
    system = model(family)
    names = [str(words.tolist()) for words in SOURCES]
    samples = range(search.width if search.width > 1 else 1)
    outputs = generate(system, batch(SOURCES), names, samples, 0.0, 0, search)
    tokens = [output.tokens for found in outputs for output in found]
    assert all(words.index(END) == 5 for words in tokens)
    if family == "mbart":
        assert all(words[0] == 7 for words in tokens)
    if family == "marian":
        assert not any(PAD in words for words in tokens)
        with torch.inference_mode():
            memory = system.encode(batch(SOURCES))
            executor = system.executor(memory)
            first = executor.logits(executor.step(torch.full((len(memory),), PAD), None))
        assert (first.argmax(-1) == PAD).any()  # so the rule is what keeps it away


@families
def test_special_words_and_sizes_are_the_family_s(family: str) -> None:
    system = model(family)
    network = system.hugging_face.network
    assert system.rules.end == END
    assert system.pad_token == PAD
    assert system.start_token == network.generation_config.decoder_start_token_id
    assert system.backbone.width == 16
    limit = None if family.startswith(("t5", "mt5")) else 40
    assert system.hugging_face.max_source_length == limit
