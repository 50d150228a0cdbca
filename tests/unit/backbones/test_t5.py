import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration

from polyphrase.backbones.backbone import load_seq2seq
from polyphrase.backbones.executor import Executor, Rules
from polyphrase.backbones.huggingface import HuggingFaceBackbone, HuggingFaceExecutor
from polyphrase.backbones.memory import Memory
from polyphrase.backbones.t5 import T5Decoder, T5Executor
from polyphrase.decoding.hypotheses import Hypotheses
from polyphrase.decoding.search import run_search
from polyphrase.decoding.settings import Search
from polyphrase.models.adapters import LoraSettings, add_adapters

END = 1
SEARCHES = {
    "beam": Search(beams=4, max_length=14),
    "penalised": Search(beams=5, length_penalty=0.6, max_length=11, min_length=4),
    "one": Search(beams=1, max_length=9),
    "diverse": Search(method="diverse-beam", beams=6, groups=3, diversity=0.7, max_length=10),
    "greedy": Search(method="greedy", max_length=12),
    "sample": Search(method="sample", max_length=20),
    "nucleus": Search(method="sample", top_p=0.9, top_k=40, max_length=20),
}


def tiny(
    act: str = "gated-gelu", tied: bool = False, dtype: torch.dtype = torch.float64
) -> T5ForConditionalGeneration:
    torch.manual_seed(3)
    config = T5Config(
        vocab_size=256,
        d_model=24,
        d_kv=5,
        d_ff=40,
        num_layers=1,
        num_decoder_layers=3,
        num_heads=3,
        feed_forward_proj=act,
        relative_attention_num_buckets=6,
        relative_attention_max_distance=9,
        decoder_start_token_id=0,
        initializer_factor=2.0,
    )
    config.tie_word_embeddings = config.scale_decoder_outputs = tied
    network = T5ForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "layer_norm" in name:
                weight.uniform_(0.5, 1.5)
            elif "relative_attention_bias" in name:
                weight.normal_()
        network.lm_head.weight[END] += 0.1  # ends come early enough for rows to leave
    return network.to(dtype).eval()


def memory(rows: int, dtype: torch.dtype = torch.float64, width: int = 24) -> Memory:
    generator = torch.Generator().manual_seed(5)
    states = torch.randn(rows, 7, width, generator=generator, dtype=torch.float64)
    lengths = torch.randint(1, 8, (rows, 1), generator=generator)
    return Memory(states.to(dtype), torch.arange(7)[None] < lengths)


def search(executor: Executor, rows: int, how: Search) -> Hypotheses:
    uniforms = torch.rand(rows, how.max_length, generator=torch.Generator().manual_seed(7))
    return run_search(executor, rows, how, Rules(END), 0, 0, torch.device("cpu"), uniforms)


def assert_same(one: Hypotheses, other: Hypotheses, tolerance: float) -> None:
    torch.testing.assert_close(one.tokens, other.tokens, rtol=0, atol=0)
    torch.testing.assert_close(
        one.log_probability, other.log_probability, rtol=0, atol=tolerance, check_dtype=False
    )


@pytest.mark.parametrize("how", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(
    ("act", "tied"), [("gated-gelu", False), ("gated-gelu", True), ("relu", True), ("relu", False)]
)
@torch.inference_mode()
def test_all_hypotheses_are_those_of_the_network_itself(
    act: str, tied: bool, dtype: torch.dtype, how: Search
) -> None:
    network, source = tiny(act, tied, dtype), memory(9, dtype)
    assert (network.lm_head.weight is network.shared.weight) == tied
    fast = HuggingFaceBackbone(network).executor(source)
    assert isinstance(fast, T5Executor)
    found = search(fast, 9, how)
    expected = search(HuggingFaceExecutor(network, source), 9, how)
    assert_same(found, expected, 1e-4)  # scores add up in float32


@torch.inference_mode()
def test_hypotheses_of_the_starter_are_those_of_the_network_itself() -> None:
    network = load_seq2seq("starter").eval()
    source = memory(4, torch.float32, network.config.d_model)
    source = source.with_states(source.states * 0.2)
    how = Search(beams=4, max_length=8, min_length=3)
    fast = HuggingFaceBackbone(network).executor(source)
    assert isinstance(fast, T5Executor)
    found = search(fast, 4, how)
    assert_same(found, search(HuggingFaceExecutor(network, source), 4, how), 1e-3)


def run(executor: Executor, steps: Sequence[tuple[Tensor, Tensor | None]]) -> list[Tensor]:
    return [executor.logits(executor.step(tokens, parents)) for tokens, parents in steps]


@pytest.mark.parametrize("seed", range(8))
@torch.inference_mode()
def test_any_parents_will_do(seed: int) -> None:
    """Rows branch, mix, leave and come in any number, beyond the last distance of the bias."""
    generator = torch.Generator().manual_seed(seed)
    network, source = tiny(), memory(5)
    rows = 5
    steps: list[tuple[Tensor, Tensor | None]] = []
    for position in range(24):
        parents = None
        if position:
            count = int(torch.randint(1, 16, (), generator=generator))
            parents = torch.randint(rows, (count,), generator=generator)
            if position % 3 == 0:
                parents = parents.sort().values
            rows = count
        steps.append((torch.randint(256, (rows,), generator=generator), parents))
    found = run(T5Executor(T5Decoder(network, torch.float64), source), steps)
    expected = run(HuggingFaceExecutor(network, source), steps)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-3)  # their norms are float32


@torch.inference_mode()
def test_slots_that_no_hypothesis_needs_are_given_up() -> None:
    executor = T5Executor(T5Decoder(tiny(), torch.float64), memory(3))
    executor.step(torch.zeros(3, dtype=torch.long), None)
    first = torch.tensor([0, 1, 2]).repeat_interleave(6)
    executor.step(torch.arange(18), first)
    best_only = torch.tensor([0, 6, 12]).repeat_interleave(6)  # all continue one hypothesis
    for _ in range(60):
        executor.step(torch.arange(18), best_only)
    assert executor._past.keys.shape[3] <= 62 + 2 * 6 * 8


@torch.inference_mode()
def test_bfloat16_is_close() -> None:
    network, source = tiny(dtype=torch.float32), memory(6, torch.float32)
    backbone = HuggingFaceBackbone(network)
    assert isinstance(backbone.executor(source), T5Executor)
    tokens = torch.arange(6)
    exact = run(backbone.executor(source), [(tokens, None)])[0]
    backbone.precision = torch.bfloat16
    rounded = run(backbone.executor(source), [(tokens, None)])[0]
    assert rounded.dtype == torch.bfloat16
    assert not torch.equal(rounded.float(), exact)
    assert (rounded - exact).norm() < 0.03 * exact.norm()


def test_changed_weights_are_seen_by_the_next_executor() -> None:
    network, source = tiny(dtype=torch.float32), memory(4, torch.float32)
    backbone = HuggingFaceBackbone(network).eval()

    def logits() -> Tensor:
        with torch.inference_mode():
            return run(backbone.executor(source), [(torch.arange(4), None)])[0]

    before = logits()
    assert torch.equal(logits(), before)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    network.lm_head.weight.grad = torch.ones_like(network.lm_head.weight)
    optimizer.step()
    stepped = logits()
    assert not torch.equal(stepped, before)
    twin = copy.deepcopy(backbone)
    network.load_state_dict(tiny("gated-gelu", dtype=torch.float32).state_dict())
    assert torch.equal(logits(), before)
    with torch.inference_mode():
        again = run(twin.executor(source), [(torch.arange(4), None)])[0]
    assert torch.equal(again, stepped)


def test_weights_are_rearranged_once() -> None:
    backbone = HuggingFaceBackbone(tiny(dtype=torch.float32)).eval()
    with torch.inference_mode():
        assert backbone._rearranged() is backbone._rearranged()
        kept = backbone._rearranged()
        backbone.precision = torch.bfloat16
        assert backbone._rearranged() is not kept
    backbone.train()
    assert backbone._fast is None


def test_the_general_executor_is_used_where_the_fast_one_is_not_meant() -> None:
    backbone, source = HuggingFaceBackbone(tiny()).eval(), memory(2)
    assert isinstance(backbone.executor(source), HuggingFaceExecutor)  # gradients are wanted
    with torch.inference_mode():
        assert isinstance(backbone.executor(source), T5Executor)
        backbone.train()
        assert isinstance(backbone.executor(source), HuggingFaceExecutor)  # dropout
        backbone.eval()
        add_adapters(backbone.network, LoraSettings(rank=2))
        assert isinstance(backbone.executor(source), HuggingFaceExecutor)
    assert not T5Decoder.fits(
        T5ForConditionalGeneration(
            T5Config(
                dense_act_fn="silu",
                vocab_size=9,
                d_model=8,
                num_layers=1,
                d_ff=8,
                d_kv=4,
                num_heads=2,
            )
        )
    )
