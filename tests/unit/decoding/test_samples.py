"""A sample depends on the model, the sentence, the seed and its number, and on nothing else."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from polyphrase.api import Rewriter, load
from polyphrase.backbones.memory import Memory
from polyphrase.decoding.generate import NamedDraws, generate
from polyphrase.decoding.randomness import latent_noise, stream, word_uniforms
from polyphrase.decoding.settings import Search
from polyphrase.models.latent_seq2seq import LatentSeq2Seq

TEXTS = [
    "how do i learn music ?",
    "how do people buy books now ?",
    "what ?",
    "how do you see fish , and how do they see you now , and what do we see ?",
]
SEARCHES = {
    "beam": Search(beams=3, max_length=10),
    "diverse": Search(method="diverse-beam", beams=4, groups=2, max_length=10),
    "greedy": Search(method="greedy", max_length=10),
    "sample": Search(method="sample", top_p=0.9, max_length=10),
}


@pytest.fixture(scope="module")
def rewriter(tiny_model: Path) -> Rewriter:
    return load(tiny_model, device="cpu", precision="float32")


class Watched:
    """What reached the decoder."""

    def __init__(self, model: LatentSeq2Seq, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memories: list[Memory] = []
        self.z: list[Tensor] = []
        fuse, executor = model.fuse, model.executor

        def watched_fuse(memory: Memory, z: Tensor) -> Memory:
            self.z.append(z)
            return fuse(memory, z)

        def watched_executor(memory: Memory) -> Any:
            self.memories.append(memory)
            return executor(memory)

        monkeypatch.setattr(model, "fuse", watched_fuse)
        monkeypatch.setattr(model, "executor", watched_executor)


@pytest.mark.parametrize("how", SEARCHES.values(), ids=SEARCHES)
def test_company_number_and_order_do_not_matter(rewriter: Rewriter, how: Search) -> None:
    full = rewriter.generate(TEXTS, n=5, seed=3, search=how)
    assert len({text for texts in full for text in texts}) > 8
    assert rewriter.generate(TEXTS[::-1], n=5, seed=3, search=how) == full[::-1]
    for row, text in enumerate(TEXTS):
        assert rewriter.generate([text], n=5, seed=3, search=how) == [full[row]]
    assert rewriter.generate(TEXTS, n=2, seed=3, search=how) == [found[:2] for found in full]
    assert rewriter.generate(TEXTS, n=5, seed=4, search=how) != full
    small = Rewriter(rewriter.model, rewriter.codec, "small", batch_tokens=1)
    assert small.generate(TEXTS, n=5, seed=3, search=how) == full
    twice = rewriter.generate([TEXTS[0], TEXTS[0]], n=3, seed=3, search=how)
    assert twice == [full[0][:3]] * 2


def test_z_is_the_same_to_the_bit(rewriter: Rewriter) -> None:
    model = rewriter.model
    assert isinstance(model, LatentSeq2Seq)

    def drawn(texts: list[str], numbers: list[int]) -> list[list[Tensor]]:
        """The noise of each sample of each text, without padding."""
        sources = rewriter.codec.encode(texts).tensors
        draws = NamedDraws(7, texts, numbers, 2.0, 10, torch.device("cpu"))
        noise = draws.normal(sources["attention_mask"].bool(), 24)
        lengths = sources["attention_mask"].sum(1).tolist()
        return [
            [noise[column, row, :length] for column in range(len(numbers))]
            for row, length in enumerate(lengths)
        ]

    together = drawn(TEXTS, [0, 1, 2, 3])
    for row, text in enumerate(TEXTS):
        assert torch.equal(drawn([text], [2])[0][0], together[row][2])
    backwards = drawn(TEXTS[::-1], [3, 0])
    assert torch.equal(backwards[0][1], together[-1][0])
    assert not torch.equal(together[0][0], together[0][1])


def test_noise_is_zero_at_padding_and_standard_normal_elsewhere() -> None:
    mask = torch.arange(40)[None] < torch.tensor([[40], [3]])
    noise = latent_noise(0, ["one", "two"], range(30), mask, 50)
    assert noise.shape == (30, 2, 40, 50)
    assert bool((noise[:, 1, 3:] == 0).all())
    real = noise[:, 0].flatten()
    assert abs(float(real.mean())) < 0.02
    assert abs(float(real.std()) - 1) < 0.01
    uniforms = word_uniforms(0, ["one", "two"], range(200), 50)
    assert abs(float(uniforms.mean()) - 0.5) < 0.01
    assert 0 <= float(uniforms.min()) <= float(uniforms.max()) < 1


def test_streams_have_names() -> None:
    def first(*name: Any) -> float:
        return float(torch.rand(1, generator=stream(*name)))

    names = [(0, "a", 0, "z"), (1, "a", 0, "z"), (0, "b", 0, "z"), (0, "a", 1, "z"),
             (0, "a", 0, "words"), (0, "a\ud800", 0, "z"), (0, "1\0a", 0, "z")]  # fmt: skip
    assert len({first(*name) for name in names}) == len(names)
    assert first(*names[0]) == first(*names[0])


@pytest.mark.parametrize("how", SEARCHES.values(), ids=SEARCHES)
def test_every_beam_of_a_sample_sees_one_z(
    rewriter: Rewriter, how: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = rewriter.model
    assert isinstance(model, LatentSeq2Seq)
    watched = Watched(model, monkeypatch)
    sources = rewriter.codec.encode(TEXTS)
    outputs = generate(model, sources.tensors, TEXTS, range(3), 2.0, 0, how)
    (memory,), (z,) = watched.memories, watched.z  # drawn once; one row for each sample
    assert len(memory) == len(z) == len(TEXTS) * 3
    with torch.inference_mode():
        for row, found in enumerate(outputs):
            for output in found:
                one = memory.select(torch.tensor([3 * row + output.sample]))
                nll = float(model.nll(one, torch.tensor([output.tokens])))
                assert output.log_probability == pytest.approx(-nll, abs=1e-3)


@pytest.mark.parametrize("how", SEARCHES.values(), ids=SEARCHES)
def test_the_cache_changes_nothing(
    rewriter: Rewriter, how: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same texts as from a decoder that reads every prefix anew."""
    model = rewriter.model
    assert isinstance(model, LatentSeq2Seq)
    network = model.hugging_face.network

    class Forgetful:
        def __init__(self, memory: Memory) -> None:
            self.memory, self.read = memory, torch.empty(len(memory), 0, dtype=torch.long)

        def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
            if parents is not None:
                self.memory, self.read = self.memory.select(parents), self.read[parents]
            self.read = torch.cat([self.read, tokens[:, None]], 1)
            output = network(
                encoder_outputs=(self.memory.states,),
                attention_mask=self.memory.mask.long(),
                decoder_input_ids=self.read,
                use_cache=False,
            )
            return output.logits[:, -1]

        def logits(self, features: Tensor) -> Tensor:
            return features

    fast = rewriter.generate(TEXTS, n=4, search=how)
    monkeypatch.setattr(model, "executor", Forgetful)
    assert rewriter.generate(TEXTS, n=4, search=how) == fast


def test_spread_moves_the_samples_apart(rewriter: Rewriter) -> None:
    different = [
        len({tuple(texts) for texts in zip(*rewriter.generate(TEXTS, 8, spread), strict=True)})
        for spread in (1e-12, 4.0)
    ]
    assert different == [1, 8]
    mean = rewriter.generate(TEXTS, 1, spread=0.0)
    assert rewriter.generate(TEXTS, 1, spread=1e-12) == mean
