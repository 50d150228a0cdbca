"""What the other systems cost: the pointer-generator beside plain LSTMs, and the one search.

The search must be worth having for every decoder: it is measured against a plain beam search over
the pointer-generator, one sentence at a time, and against `generate` on two families that have no
decoder of ours. Both must find the same hypotheses.
"""

import statistics
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from transformers import BartConfig, MarianConfig, PretrainedConfig

from polyphrase.backbones.executor import Rules
from polyphrase.backbones.huggingface import HuggingFaceBackbone
from polyphrase.backbones.memory import Memory
from polyphrase.backbones.pointer_generator import (
    PointerGenerator,
    PointerGeneratorConfig,
    State,
)
from polyphrase.data.codec import IGNORED
from polyphrase.decoding.search import run_search
from polyphrase.decoding.settings import Search
from polyphrase.models.latent_seq2seq import LatentSeq2Seq
from polyphrase.models.system import System

from .generation import after_end
from .machine import seconds
from .peers import transformers_generate
from .table import Line

Batch = tuple[Tensor, Tensor, Tensor]
"""Source words and mask `[B, N]`, target words `[B, T]`."""


def measure(quick: bool) -> list[Line]:
    """The lines of the table about systems."""
    torch.manual_seed(0)
    return [_training(quick), _pointing(quick), *_families(quick)]


# -- training ------------------------------------------------------------------------------------


class Plain(nn.Module):
    """`nn.LSTM` reads in both directions, `nn.LSTM` writes, no attention and no copying."""

    def __init__(self, config: PointerGeneratorConfig) -> None:
        super().__init__()
        width, size = 2 * config.encoder_size, config.decoder_size
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        self.encoder = nn.LSTM(
            config.embedding_size, config.encoder_size, batch_first=True, bidirectional=True
        )
        self.start_hidden = nn.Linear(width, size)
        self.start_cell = nn.Linear(width, size)
        self.decoder = nn.LSTM(config.embedding_size, size, batch_first=True)
        self.output = nn.Linear(size, config.vocab_size)

    def forward(self, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """The loss per target word."""
        packed = pack_padded_sequence(
            self.embedding(ids), mask.sum(1), batch_first=True, enforce_sorted=False
        )
        _, (hidden, cell) = self.encoder(packed)
        first = self.start_hidden(hidden.transpose(0, 1).flatten(1))[None]
        cell = self.start_cell(cell.transpose(0, 1).flatten(1))[None]
        late = F.pad(labels[:, :-1].clamp(min=0), (1, 0))
        states, _ = self.decoder(self.embedding(late), (first, cell))
        real = labels != IGNORED
        return F.cross_entropy(self.output(states[real]), labels[real])


def _training(quick: bool) -> Line:
    """A training step (forward, backward, update) of both, in turns on the same batches."""
    config = PointerGeneratorConfig()
    plain, pointer = Plain(config), PointerGenerator(config)

    def pointing(ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        memory = pointer.encode({"input_ids": ids, "attention_mask": mask})
        return pointer.nll(memory, labels).sum() / (labels != IGNORED).sum()

    steps = {"plain": _trained(plain, plain), "pointer": _trained(pointer, pointing)}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for batch in _batches(config, 64, 16, 5 if quick else 12):
        for name, step in steps.items():
            begun = time.perf_counter()
            step(batch)
            times[name].append(time.perf_counter() - begun)
    # The first batch is a warm-up.
    taken = {name: statistics.median(several[1:]) for name, several in times.items()}
    return Line(
        "training step of the pointer-generator / plain `nn.LSTM` encoder-decoder",
        taken["pointer"] / taken["plain"],
        2,
        False,
        f"{taken['pointer']:.2f} against {taken['plain']:.2f} s, 64 pairs of 16 words, both with "
        "20,000 words",
    )


def _trained(model: nn.Module, loss: Callable[..., Tensor]) -> Callable[[Batch], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        loss(*batch).backward()
        optimizer.step()

    return step


def _batches(config: PointerGeneratorConfig, size: int, words: int, count: int) -> Iterator[Batch]:
    """Random words in sentences of half to one and a half times `words`."""
    place = torch.arange(words * 3 // 2)
    for _ in range(count):
        lengths = torch.randint(words // 2, len(place), (2, size))
        lengths[:, 0] = len(place)
        ids = torch.randint(4, config.vocab_size, (size, len(place)))
        labels = torch.randint(4, config.vocab_size, (size, len(place)))
        mask = place < lengths[0][:, None]
        yield (
            ids.masked_fill(~mask, 0),
            mask.long(),
            labels.masked_fill(place >= lengths[1][:, None], IGNORED),
        )


# -- search --------------------------------------------------------------------------------------


@torch.inference_mode()
def _pointing(quick: bool) -> Line:
    """Beam search of ten samples of some sentences: ours over all at once, theirs one by one."""
    model = LatentSeq2Seq.from_scratch(PointerGeneratorConfig()).eval()
    network = model.backbone
    assert isinstance(network, PointerGenerator)
    ids, mask, _ = next(_batches(network.config, 1 if quick else 2, 16, 1))
    ids[:, 1] = network.config.vocab_size + 1  # a word that the vocabulary does not hold
    memory = network.encode({"input_ids": ids, "attention_mask": mask}).repeat(10)
    # Other states in each sample, as with a latent.
    memory = memory.with_states(memory.states + 0.1 * torch.randn_like(memory.states))
    search = Search(beams=10, min_length=12, max_length=20)

    def one_by_one() -> list[list[int]]:
        rows = torch.arange(len(memory)).split(1)
        return [_plain_beams(network, memory.select(row), search, model.rules) for row in rows]

    if one_by_one() != [_words(best, model.rules.end) for best in _found(model, memory, search)]:
        raise AssertionError("our outputs are not those of a plain beam search")
    mine = seconds(lambda: _found(model, memory, search), 2)
    theirs = seconds(one_by_one, 2)
    each = len(memory) // 10
    return Line(
        "beam search of the pointer-generator / plain loop over samples and steps",
        theirs / mine,
        1,
        True,
        f"{mine / each:.2f} against {theirs / each:.2f} s a sentence, ten samples of 10 beams, all "
        "outputs equal",
    )


def _plain_beams(
    network: PointerGenerator, memory: Memory, search: Search, rules: Rules
) -> list[int]:
    """Beam search over one row as anybody would write it: its beams in a batch, step by step."""
    keys = network.attention.keys(memory.states)
    state = State.first(memory, network.config.coverage)
    copied = memory.extras["words"]
    width = max(network.config.vocab_size, int(copied.max()) + 1)
    beams: list[tuple[list[int], float]] = [([], 0.0)]
    done: list[tuple[float, list[int]]] = []
    for position in range(search.max_length):
        rows = torch.zeros(len(beams), dtype=torch.long)
        read = torch.tensor([[2, *said][-1] for said, _ in beams])
        state, x, attention = network._advance(
            memory.select(rows), keys[rows], state, network._fed(read)
        )
        logits, gate = network._words(state.features(x))
        p = torch.zeros(len(beams), width)
        p[:, : logits.shape[1]] = logits.softmax(-1) * gate.sigmoid()[:, None]
        p.scatter_add_(1, copied[rows], (1 - gate.sigmoid())[:, None] * attention)
        log_p = p.log()
        log_p[:, list(rules.forbidden)] = -torch.inf
        if position < search.min_length:
            log_p[:, rules.end] = -torch.inf
        total = log_p + torch.tensor([score for _, score in beams])[:, None]
        scores, places = total.flatten().topk(2 * search.beams)
        kept: list[tuple[list[int], float]] = []
        parents: list[int] = []
        last = position + 1 == search.max_length
        candidates = zip(scores.tolist(), places.tolist(), strict=True)
        for rank, (score, place) in enumerate(candidates):
            said = [*beams[place // width][0], place % width]
            if place % width == rules.end or last:
                if rank < search.beams:
                    done.append((score / len(said) ** search.length_penalty, said))
            elif len(kept) < search.beams:
                kept.append((said, score))
                parents.append(place // width)
        done = sorted(done, key=lambda one: -one[0])[: search.beams]
        if last or (
            len(done) == search.beams
            and kept[0][1] / (position + 1) ** search.length_penalty <= done[-1][0]
        ):
            break
        beams, state = kept, state.select(torch.tensor(parents))
    return done[0][1]


def _families(quick: bool) -> Iterator[Line]:
    """Families whose own decoder we run: `generate` has the same one, so the search differs."""
    sizes = {
        **{"d_model": 256, "encoder_layers": 3, "decoder_layers": 3, "vocab_size": 16_000},
        **{"encoder_attention_heads": 4, "decoder_attention_heads": 4},
        **{"encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "init_std": 0.1},
        **{"max_position_embeddings": 128},
    }
    ends = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    families: dict[str, PretrainedConfig] = {
        "BART": BartConfig(**sizes, **ends, bos_token_id=1, forced_eos_token_id=2),
        "Marian": MarianConfig(**sizes, **ends, forced_eos_token_id=None),
    }
    for name, config in families.items():
        yield _family(name, config, quick)


@torch.inference_mode()
def _family(name: str, config: PretrainedConfig, quick: bool) -> Line:
    model = LatentSeq2Seq.from_scratch(config).eval()
    assert isinstance(model.backbone, HuggingFaceBackbone)
    network = model.backbone.network
    ids = torch.randint(4, config.vocab_size, (1 if quick else 2, 20))
    memory = model.encode({"input_ids": ids, "attention_mask": torch.ones_like(ids)}).repeat(10)
    memory = memory.with_states(memory.states + 0.1 * torch.randn_like(memory.states))
    search = Search(beams=10, min_length=12, max_length=20)
    end = model.rules.end
    found = after_end(_found(model, memory, search), end, 0)
    expected = after_end(transformers_generate(network, memory, search), end, 0)
    # Untrained weights leave near ties, which the last digit decides; all others must be equal.
    same = (found == expected).all(-1)
    if same.float().mean() < 0.98:
        raise AssertionError(f"our hypotheses are not those of {name}'s generate")
    mine = seconds(lambda: _found(model, memory, search), 2)
    theirs = seconds(lambda: transformers_generate(network, memory, search), 2)
    each = len(memory) // 10
    return Line(
        f"beam search of a small {name} / its own batched `generate`",
        theirs / mine,
        1,
        True,
        f"{mine / each:.2f} against {theirs / each:.2f} s a sentence, ten samples of 10 beams, "
        f"{int(same.sum())} of {same.numel()} hypotheses equal",
    )


def _found(model: System, memory: Memory, search: Search) -> Tensor:
    """All hypotheses of our search, `[R, n, T]`."""
    return run_search(
        model.executor(memory),
        len(memory),
        search,
        model.rules,
        model.start_token,
        model.pad_token,
        memory.states.device,
    ).tokens


def _words(hypotheses: Tensor, end: int) -> list[int]:
    """The best of some hypotheses `[n, T]`, without what follows its end."""
    said: list[int] = hypotheses[0].tolist()
    return said[: said.index(end) + 1] if end in said else said
