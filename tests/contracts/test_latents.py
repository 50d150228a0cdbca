"""Every prior, posterior, injection and kernel trains, saves, loads and generates."""

import itertools
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpytorch
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

from polyphrase.api import load
from polyphrase.backbones.backbone import load_seq2seq
from polyphrase.decoding.settings import Search
from polyphrase.latent.config import LatentConfig
from polyphrase.models.latent_seq2seq import LatentSeq2Seq
from polyphrase.settings import from_mapping

SOURCES = ["how do i learn music ?", "how do people buy books now ?", "what ?"]
TARGETS = ["what can i do to learn music ?", "what can people do to buy books ?", "how ?"]
COMBINATIONS = {
    "-".join(parts): from_mapping(
        LatentConfig,
        {"prior": parts[0], "posterior": parts[1], "injection": parts[2], "size": size},
    )
    for parts, size in zip(
        itertools.product(
            ("gp", "normal", "mixture", "vamp"), ("correlated", "diagonal"), ("concat", "add")
        ),
        itertools.cycle((None, 10, 24)),
        strict=False,
    )
}
KERNELS = {
    name: from_mapping(
        LatentConfig,
        {"kernel": {"name": name, "learnable": learnable, "scale": scale, "r": 0.8}},
    )
    for name, learnable, scale in (
        ("rbf", True, "relative"),
        ("matern12", False, "absolute"),
        ("matern32", True, "absolute"),
        ("matern52", False, "relative"),
        ("rational_quadratic", True, "relative"),
        ("linear", True, "relative"),
        ("cosine", False, "absolute"),
    )
}
OBJECT = "gpytorch"
CASES = {**COMBINATIONS, **KERNELS, OBJECT: LatentConfig(), "none": None}


def kernel_of(case: str) -> Any:
    if case != OBJECT:
        return None
    kernels = gpytorch.kernels
    return kernels.ScaleKernel(kernels.RBFKernel() + kernels.MaternKernel(nu=1.5)).double()


def fresh(case: str, backbone: Path) -> LatentSeq2Seq:
    torch.manual_seed(2)
    return LatentSeq2Seq.from_backbone(str(backbone), CASES[case], kernel=kernel_of(case))


def pairs(model: LatentSeq2Seq, backbone: Path) -> tuple[Mapping[str, Tensor], Tensor]:
    batch = model.codec(str(backbone)).pairs(SOURCES, TARGETS)
    labels = batch.pop("labels")
    return batch, labels


def trained(model: LatentSeq2Seq, backbone: Path) -> list[float]:
    """Twelve steps on one batch; the loss before each."""
    sources, labels = pairs(model, backbone)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    model.train()
    for _ in range(12):
        torch.manual_seed(5)  # the same z: what falls is the bound, not its noise
        loss = model.elbo(sources, labels).loss
        optimizer.zero_grad()
        loss.backward()
        assert all(
            bool(weight.grad.isfinite().all())
            for weight in model.parameters()
            if weight.grad is not None
        )
        optimizer.step()
        losses.append(float(loss.detach()))
    model.eval()
    return losses


@pytest.mark.filterwarnings("ignore:the mean correlation")
@pytest.mark.parametrize("case", CASES)
def test_at_step_0_the_model_is_its_backbone(case: str, tiny_backbone: Path) -> None:
    model = fresh(case, tiny_backbone).eval()
    network = load_seq2seq(str(tiny_backbone)).eval()
    sources, labels = pairs(model, tiny_backbone)
    with torch.inference_mode():
        logits = network(**sources, labels=labels).logits.log_softmax(-1)
        real = labels != -100
        expected = -logits.gather(2, labels.where(real, 0)[..., None])[..., 0] * real
        for sample in (False, True):
            found = model.elbo(sources, labels, sample=sample).nll
            torch.testing.assert_close(found, expected.sum(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:the mean correlation")
@pytest.mark.parametrize("case", CASES)
def test_trains_saves_loads_and_generates(case: str, tiny_backbone: Path, tmp_path: Path) -> None:
    model = fresh(case, tiny_backbone)
    losses = trained(model, tiny_backbone)
    assert all(map(torch.isfinite, torch.tensor(losses)))
    assert losses[-1] < losses[0] - 0.2
    assert losses[-1] < min(losses[:6])

    model.save_pretrained(tmp_path)
    model.codec(str(tiny_backbone)).save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert isinstance(loaded, LatentSeq2Seq)
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name
        assert loaded.state_dict()[name].dtype == weight.dtype

    sources, labels = pairs(model, tiny_backbone)
    with torch.inference_mode():
        for sample in (False, True):
            torch.manual_seed(0)
            before = model.elbo(sources, labels, sample=sample)
            torch.manual_seed(0)
            after = loaded.elbo(sources, labels, sample=sample)
            assert torch.equal(before.nll, after.nll)
            assert torch.equal(before.kl, after.kl)

    rewriter = load(tmp_path, device="cpu", precision="float32")
    how = Search(beams=3, max_length=12)
    mean = rewriter.generate(SOURCES, n=1, spread=0.0, search=how)
    ids = loaded.generate(**sources, num_beams=3, max_new_tokens=12, do_sample=False)
    spoken = [rewriter.codec.decode(row, rewriter.codec.encode(SOURCES), 0) for row in ids.tolist()]
    assert spoken == [texts[0] for texts in mean]
    if case != "none":
        samples = rewriter.generate(SOURCES, n=3, spread=2.0, search=how)
        assert [len(texts) for texts in samples] == [3, 3, 3]


def test_a_fresh_process_loads_it_by_the_auto_class(tiny_model: Path) -> None:
    """`import polyphrase` is enough; nothing of transformers need be imported before or after."""
    script = (
        "import polyphrase, sys\n"
        "from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer\n"
        "folder = sys.argv[1]\n"
        "model = AutoModelForSeq2SeqLM.from_pretrained(folder)\n"
        "words = AutoTokenizer.from_pretrained(folder)(['how do i learn music ?'],"
        " return_tensors='pt')\n"
        "ids = model.generate(words['input_ids'], attention_mask=words['attention_mask'],"
        " num_beams=3, max_new_tokens=12)\n"
        "print(type(model).__name__, AutoConfig.from_pretrained(folder).latent['prior'])\n"
        "print(ids.tolist()[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tiny_model)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    name, ids = done.stdout.splitlines()
    assert name == "LatentSeq2Seq gp"
    rewriter = load(tiny_model, device="cpu", precision="float32")
    text = ["how do i learn music ?"]
    mean = rewriter.generate(text, 1, spread=0.0, search=Search(beams=3, max_length=12))
    words = [int(word) for word in ids.strip("[]").split(",")]
    assert rewriter.codec.decode(words, rewriter.codec.encode(text), 0) == mean[0][0]
