"""Tiny models that several test modules share."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from polyphrase.cli.main import main
from polyphrase.latent.config import LatentConfig
from polyphrase.models.latent_seq2seq import LatentSeq2Seq

SUBJECTS = ("i", "you", "we", "they", "people")
VERBS = ("like", "learn", "want", "see", "buy")
OBJECTS = ("fish", "music", "books", "tea", "maths", "songs")
SPECIAL = ("<pad>", "</s>", "<unk>")
WORDS = (*SPECIAL, *SUBJECTS, *VERBS, *OBJECTS, "how", "do", "?", "what", "can", "to", "now")


def toy_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Questions and the same questions in other words."""
    chosen = random.Random(seed)
    pairs = []
    for _ in range(count):
        who, does, what = (chosen.choice(words) for words in (SUBJECTS, VERBS, OBJECTS))
        now = chosen.choice(("", " now"))
        pairs.append(
            (f"how do {who} {does} {what}{now} ?", f"what can {who} do to {does} {what} ?")
        )
    return pairs


@pytest.fixture(scope="session")
def tiny_backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random T5, with a tokenizer that knows the words of `toy_pairs`."""
    folder = tmp_path_factory.mktemp("tiny-backbone")
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(WORDS) + 2, d_model=24, d_kv=8, d_ff=32, num_layers=2, num_heads=3,
        feed_forward_proj="gated-gelu", decoder_start_token_id=0, dropout_rate=0.1,
        relative_attention_num_buckets=8, initializer_factor=0.6,
    )  # fmt: skip
    config.tie_word_embeddings = config.scale_decoder_outputs = False
    T5ForConditionalGeneration(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
        model_max_length=64,
    ).save_pretrained(folder)  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def tiny_model(tiny_backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model with a Gaussian-process latent that its decoder listens to."""
    folder = tmp_path_factory.mktemp("tiny-model")
    torch.manual_seed(1)
    model = LatentSeq2Seq.from_backbone(str(tiny_backbone), LatentConfig())
    assert model.injection is not None
    torch.nn.init.normal_(model.injection.from_z.weight, std=0.5)
    model.generation_config.spread = 2.0
    model.generation_config.search = {"beams": 3, "max_length": 12}
    model.save_pretrained(folder)
    model.codec(str(tiny_backbone)).save_pretrained(folder)
    return folder


Command = Callable[..., int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line in this process: arguments in, exit code out."""

    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["polyphrase", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return run


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `train.tsv` and `val.tsv`."""
    folder = tmp_path_factory.mktemp("toy")
    for name, count, seed in (("train.tsv", 60, 0), ("val.tsv", 20, 1)):
        lines = (f"{source}\t{target}\n" for source, target in toy_pairs(count, seed))
        (folder / name).write_text("".join(lines))
    return folder
