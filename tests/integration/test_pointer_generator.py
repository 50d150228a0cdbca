"""The pointer-generator learns to point, and its latents do what the paper says they do."""

import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from polyphrase.api import Rewriter
from polyphrase.data.vocabulary import Vocabulary
from polyphrase.decoding.settings import Search
from polyphrase.models.catalogue import build
from polyphrase.settings import from_mapping, merge
from polyphrase.training.callbacks import PosteriorCollapse
from polyphrase.training.catalogue import row
from polyphrase.training.run import train
from polyphrase.training.settings import TrainSettings

SIZES = {"embedding_size": 16, "encoder_size": 32, "decoder_size": 32, "attention_size": 32}


def copies(count: int, seed: int) -> list[str]:
    """Texts of known words and of numbers that the vocabulary has never seen."""
    numbers = random.Random(seed)

    def word() -> str:
        known = numbers.random() < 0.6
        return numbers.choice("abcdefgh") if known else f"new{numbers.randrange(10**6)}"

    return [" ".join(word() for _ in range(numbers.randint(2, 7))) for _ in range(count)]


def test_copy_task_with_unknown_words() -> None:
    torch.manual_seed(0)
    built = build("pointer-generator", SIZES, None, Vocabulary(list("abcdefgh")))
    optimizer = torch.optim.Adam(built.model.parameters(), lr=1e-2)
    built.model.train()
    for step in range(160):
        texts = copies(32, step)
        loss = built.model(**built.codec.pairs(texts, texts)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(built.model.parameters(), 2.0)
        optimizer.step()
    unseen = copies(300, 10**6)
    search = Search(method="greedy", max_length=12)
    found = Rewriter(built.model, built.codec, "pg").generate(unseen, n=1, search=search)
    exact = sum(output == [text] for output, text in zip(found, unseen, strict=True))
    assert sum("new" in text for text in unseen) > 200
    assert exact / len(unseen) > 0.99


def run(name: str, folder: Path) -> tuple[list[str], float]:
    """Train a row on 32 pairs under the whole bound; its collapse warnings and its NLL."""
    nouns = ("mat", "floor", "sofa", "roof", "bed", "car", "box", "hill")
    pairs = folder / "pairs.tsv"
    pairs.write_text(
        "".join(f"cat {i} sat on {noun} .\t{noun} has {i} .\n" for i in range(4) for noun in nouns)
    )
    over: dict[str, Any] = {
        **{"train": str(pairs), "val": str(pairs), "out": str(folder / name)},
        **{"network": SIZES, "latent": {"size": 16}, "learning_rate": 1e-2, "batch_size": 32},
        **{"max_steps": 100, "eval_every": 50, "epochs": 1e3},
    }
    settings = from_mapping(TrainSettings, merge(row(name), over))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = train(settings)
    said = [str(item.message) for item in caught if item.category is PosteriorCollapse]
    codec = model.codec(settings.out)
    lines = [line.split("\t") for line in pairs.read_text().splitlines()]
    sources, targets = zip(*lines, strict=True)
    batch = codec.pairs(sources, targets)
    labels = batch.pop("labels")
    output = model.elbo(batch, labels, sample=False)
    return said, float(output.nll.detach().sum() / output.tokens)


def test_normal_prior_collapses_and_is_named(tmp_path: Path) -> None:
    said, nll = run("pg-normal", tmp_path)
    assert len(said) == 1  # once, not at every evaluation
    assert said[0].startswith("posterior collapse at step ")
    assert "no latent dimension is active" in said[0]
    assert "--prior gp" in said[0]
    # It cannot know the noun, and copies at random: a collapsed z takes copying with it.
    assert nll > 0.3


def test_gaussian_process_prior_does_not_collapse(tmp_path: Path) -> None:
    said, nll = run("pg-gp", tmp_path)
    assert said == []
    assert nll < 0.2


@pytest.mark.parametrize(
    ("name", "count"),
    # With an embedding of h (m(h) = P h + b) the library's Gaussian process has D more weights.
    [("pg-normal", 26_385_801), ("pg-gp", 26_385_801 + 262_144)],
)
def test_rows_have_the_papers_size(name: str, count: int) -> None:
    settings = from_mapping(TrainSettings, {**row(name), "train": "", "val": "", "out": ""})
    words = Vocabulary([str(number) for number in range(20_000 - 4)])
    with torch.device("meta"):
        built = build(settings.backbone, {"coverage": True}, settings.latent, words)
    found = sum(parameter.numel() for parameter in built.model.parameters())
    assert found - count in (0, 256)
