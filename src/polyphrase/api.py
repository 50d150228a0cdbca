"""The one door from a checkpoint to text."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from .backbones.huggingface import HuggingFaceBackbone
from .backbones.packed import has_bfloat16
from .data.codec import Codec
from .decoding.generate import generate, refuse_more_than_one_search_finds
from .decoding.settings import Search
from .decoding.workers import Workers, worker_count
from .errors import BadInput, PolyphraseWarning
from .files import disk_errors
from .models import catalogue
from .models.catalogue import AnySystem
from .models.saving import push
from .settings import from_mapping
from .text import normal_form

PARAPHRASER = "paraphraser"
"""The embedded model: the starter with a trained Gaussian-process latent."""

BATCH_TOKENS = 25_000
"""The token budget of a batch: enough to fill matrix products, few enough to stay in cache."""

_WASTE = 1.25  # how much dearer a text may become by the padding of its batch
_WINDOW = 8  # batches for each worker that are sorted by length together
_MOST_TEXTS = 1024  # in a window: nobody waits long for the first, and few of them are long
_PATIENCE = 3  # distinct rewrites are looked for among this many times as many samples
_RANKS = 10  # and then among this many hypotheses of each


class Truncated(PolyphraseWarning):
    """A text was longer than the model reads, and lost its end."""


@dataclass(frozen=True)
class Candidate:
    """One rewrite.

    Attributes:
        text: what it says.
        sample: its number; with the seed and the source, it names the random numbers behind it.
        log_probability: log p(y | z), in nats.
        tokens: how many tokens it has, its end included.
        finished: whether it came to an end by itself, and not by `max_length`.
        rank: its place among the hypotheses of its sample, 0 the best.
    """

    text: str
    sample: int
    log_probability: float
    tokens: int
    finished: bool
    rank: int = 0


@dataclass(frozen=True)
class Rewrites:
    """The rewrites of one source.

    Attributes:
        source: the text that was rewritten.
        candidates: in the order of their sample numbers.
        truncated: true when the model read only the beginning of the source.
    """

    source: str
    candidates: list[Candidate]
    truncated: bool = False


class Rewriter:
    """A model with its vocabulary: texts in, rewrites out.

    Args:
        model: what generates.
        codec: its vocabulary.
        name: what it was loaded as, for reports.
        batch_tokens: how many tokens a batch holds at most, which sets the memory that is used: a
            sample of a text counts as its source and as `max_length` words of each hypothesis. On a
            processor as many batches run at once as torch has threads.
    """

    def __init__(
        self, model: AnySystem, codec: Codec, name: str, batch_tokens: int = BATCH_TOKENS
    ) -> None:
        if batch_tokens < 1:
            raise BadInput(f"batch_tokens is {batch_tokens}: give 1 or more")
        self.model = model.eval()
        self.codec = codec
        self.name = name
        self.batch_tokens = batch_tokens

    @property
    def spread(self) -> float:
        """The spread that the model was saved with, 1 if none; 0 without a latent."""
        if not self.model.has_latent:
            return 0.0
        saved = getattr(self.model.generation_config, "spread", None)
        return 1.0 if saved is None else float(saved)

    def search(self, n: int = 10, spread: float | None = None, **chosen: Any) -> Search:
        """The search that the model was saved with, beam search with 10 beams if none.

        Args:
            n: how many rewrites are wanted: a search of one memory needs as many beams.
            spread: of the latent.
            **chosen: fields of `Search` that go before.
        """
        saved = getattr(self.model.generation_config, "search", None) or {}
        one_memory = not self.model.has_latent or spread == 0
        if one_memory and "beams" not in chosen:
            chosen["beams"] = max(n, saved.get("beams", Search.beams))
            wanted = {**saved, **chosen}
            if wanted.get("method") == "diverse-beam":  # groups are of one size
                groups = wanted.get("groups", Search.groups)
                chosen["beams"] = -(-chosen["beams"] // groups) * groups
        return from_mapping(Search, {**saved, **chosen}, "search")

    def generate(
        self,
        texts: Sequence[str],
        n: int = 10,
        spread: float | None = None,
        seed: int = 0,
        search: Search | None = None,
        distinct: bool = False,
        strict: bool = False,
    ) -> list[list[str]]:
        """Rewrite each text `n` times: see `rewrite`."""
        rewritten = self.rewrite(texts, n, spread, seed, search, distinct, strict)
        return [[candidate.text for candidate in item.candidates] for item in rewritten]

    def rewrite(
        self,
        texts: Iterable[str],
        n: int = 10,
        spread: float | None = None,
        seed: int = 0,
        search: Search | None = None,
        distinct: bool = False,
        strict: bool = False,
    ) -> Iterator[Rewrites]:
        """Rewrite texts as they come, in their order.

        Sample k of a text depends on the model, the text, the seed and k alone: not on the other
        texts, nor on how many samples are asked for.

        Args:
            texts: what to rewrite; read as far as needed.
            n: how many rewrites of each.
            spread: multiplies the posterior's covariance; 0 is the posterior mean. The model's own
                by default.
            seed: names the random numbers.
            search: how words are chosen; by default the search that the model was saved with.
            distinct: give the first `n` finished samples that differ from the source and from each
                other by more than case, spacing and punctuation, looking at 3 n samples at most;
                where these are too few, the second best hypotheses of the samples and so on to the
                tenth follow. There may still be fewer.
            strict: refuse a text that is longer than the model reads, instead of cutting it.
        """
        if n < 1:
            raise BadInput(f"n is {n}: ask for 1 rewrite or more")
        spread = self.spread if spread is None else spread
        if not 0 <= spread < float("inf"):
            raise BadInput(f"spread is {spread}: give 0 (the posterior mean) or more")
        if spread and not self.model.has_latent:
            raise BadInput(
                f"{self.name} has no latent to spread: leave the spread out or train one"
            )
        search = search or self.search(n, spread)
        asked = _Request(n, spread, seed, search, strict)
        if not asked.independent:
            refuse_more_than_one_search_finds(n, search)
        if isinstance(texts, str):
            raise BadInput("texts is one string: give a list of texts, [text]")
        checked = _checked(texts)
        if isinstance(texts, Sequence):  # all of them before the first is rewritten
            checked = iter(list(checked))
        return self._rewrite(checked, asked, distinct)

    def window(self, n: int, search: Search) -> int:
        """How many texts are sorted into batches together.

        What is batched with a text may move its numbers in their last digits. A run that is cut
        into parts at multiples of this gives the same bytes as one that is not.
        """
        usual = max(1, self.batch_tokens // (n * _tokens(32, search)))
        return min(usual * _WINDOW * worker_count(self._device), _MOST_TEXTS)

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` reads: configuration, weights, vocabulary, model card."""
        with disk_errors(folder):
            self.model.save_pretrained(folder)
            self.codec.save_pretrained(folder)

    def push_to_hub(self, name: str, private: bool | None = None, token: str | None = None) -> str:
        """Save to a repository on the Hugging Face hub, in one commit; see `save`.

        Args:
            name: the repository, as `owner/name`; it is made if it is not there.
            private: whether nobody else may see it, when it is made.
            token: of the hub; the one that `hf auth login` has kept by default.

        Returns:
            The address of the commit.
        """
        return push(self.save, name, private=private, token=token)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _rewrite(
        self, texts: Iterator[str], asked: "_Request", distinct: bool
    ) -> Iterator[Rewrites]:
        with Workers(worker_count(self._device)) as workers:
            while window := list(islice(texts, self.window(asked.n, asked.search))):
                truncated = self._look(window, asked.strict)
                rows = range(len(window))
                if distinct:
                    found = self._distinct(window, asked, workers)
                else:
                    found = self._samples(window, range(asked.n), asked, workers)
                yield from (Rewrites(window[row], found[row], truncated[row]) for row in rows)

    def _look(self, texts: list[str], strict: bool) -> list[bool]:
        """Which texts the model reads only in part."""
        truncated = self.codec.encode(texts).truncated
        if any(truncated) and strict:
            raise BadInput(
                f"a text is longer than the {self.codec.max_length} tokens that {self.name} reads: "
                f"shorten it or leave strict out to cut it ({texts[truncated.index(True)][:60]!r} "
                "...)"
            )
        if any(truncated):
            count = sum(truncated)
            warnings.warn(
                f"{count} {'text was' if count == 1 else 'texts were'} cut to the "
                f"{self.codec.max_length} tokens that {self.name} reads",
                Truncated,
                stacklevel=3,
            )
        return truncated

    def _samples(
        self, texts: list[str], samples: range, asked: "_Request", workers: Workers, ranks: int = 1
    ) -> list[list[Candidate]]:
        """Some samples of each text, computed in batches of texts that are alike in length.

        The best hypotheses of all samples come first, then the second best.
        """
        jobs = []
        for rows, part in self._plan(texts, samples, asked, workers.count):
            sources = self.codec.encode([texts[row] for row in rows])
            tensors = {name: tensor.to(self._device) for name, tensor in sources.tensors.items()}
            jobs.append((rows, part, sources, tensors))
        tasks = (
            partial(
                generate,
                self.model,
                tensors,
                [texts[row] for row in rows],
                part,
                asked.spread,
                asked.seed,
                asked.search,
                ranks,
            )
            for rows, part, _, tensors in jobs
        )
        found: list[list[Candidate]] = [[] for _ in texts]
        for (rows, _, sources, _), outputs in zip(jobs, workers.map(tasks), strict=True):
            for place, row in enumerate(rows):
                for output in outputs[place]:
                    found[row].append(
                        Candidate(
                            self.codec.decode(output.tokens, sources, place),
                            output.sample,
                            output.log_probability,
                            len(output.tokens),
                            output.tokens[-1] == self.model.rules.end,
                            output.rank,
                        )
                    )
        for candidates in found:
            candidates.sort(key=lambda candidate: (candidate.rank, candidate.sample))
        return found

    def _plan(
        self, texts: list[str], samples: range, asked: "_Request", workers: int
    ) -> Iterator[tuple[list[int], range]]:
        """Which texts run together, and which of their samples; the longest first.

        Few texts are cut into more batches than memory asks for, so that every worker has one.
        """
        lengths = [self.codec.length(text) for text in texts]
        costs = [_tokens(length, asked.search) * len(samples) for length in lengths]
        budget = min(self.batch_tokens, -(-sum(costs) // workers))
        groups = list(batches(lengths, len(samples), asked.search, budget))
        share = -(-len(samples) * len(groups) // max(workers, len(groups)))
        for rows in reversed(groups):
            if not asked.independent:  # an n-best list
                yield rows, samples
                continue
            width = _tokens(max(lengths[row] for row in rows), asked.search)
            step = max(1, min(share, self.batch_tokens // (width * len(rows))))
            for start in range(0, len(samples), step):
                yield rows, samples[start : start + step]

    def _distinct(
        self,
        texts: list[str],
        asked: "_Request",
        workers: Workers,
    ) -> list[list[Candidate]]:
        """What differs; more samples, and then more hypotheses, of texts that have too few."""
        kept: list[list[Candidate]] = [[] for _ in texts]
        seen = [{normal_form(text), ""} for text in texts]  # to say nothing is no rewrite
        second: list[list[Candidate]] = [[] for _ in texts]

        def keep(row: int, candidates: Iterable[Candidate]) -> None:
            for candidate in candidates:
                said = normal_form(candidate.text)
                if candidate.finished and said not in seen[row] and len(kept[row]) < asked.n:
                    seen[row].add(said)
                    kept[row].append(candidate)

        few = list(range(len(texts)))
        for start in range(0, asked.n * (_PATIENCE if asked.independent else 1), asked.n):
            samples = range(start, start + asked.n)
            found = self._samples([texts[row] for row in few], samples, asked, workers, _RANKS)
            for row, candidates in zip(few, found, strict=True):
                keep(row, (candidate for candidate in candidates if not candidate.rank))
                second[row] += (candidate for candidate in candidates if candidate.rank)
            few = [row for row in few if len(kept[row]) < asked.n]
            if not few:
                break
        for row in few:
            keep(row, sorted(second[row], key=lambda candidate: candidate.rank))
        return kept


@dataclass(frozen=True)
class _Request:
    """What is asked for of every text: see `Rewriter.rewrite`."""

    n: int
    spread: float
    seed: int
    search: Search
    strict: bool

    @property
    def independent(self) -> bool:
        """Whether samples are drawn one by one, and are not the ranks of one list."""
        return self.spread > 0 or self.search.stochastic


def _checked(texts: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise BadInput(f"text {number} is {text!r}: give strings")
        if not text.strip():
            raise BadInput(f"text {number} is empty: there is nothing to rewrite")
        yield text


def batches(lengths: Sequence[int], n: int, search: Search, budget: int) -> Iterator[list[int]]:
    """Which texts run together: alike in length, and within a budget of tokens.

    So memory does not grow with a corpus nor with its longest text, and a long text among short
    ones costs what it would cost alone.

    Args:
        lengths: the tokens of each text.
        n: samples of each.
        search: what will run.
        budget: the most tokens of a batch, its padding included; a text that has more runs alone.
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        longest = _tokens(lengths[row], search)
        if batch and (
            n * longest * (len(batch) + 1) > budget
            or longest > _WASTE * _tokens(lengths[batch[0]], search)
        ):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _tokens(length: int, search: Search) -> int:
    """The tokens that one sample of a text may hold: its source and all its hypotheses."""
    return length + search.width * search.max_length


def load(
    name: str | Path = PARAPHRASER,
    device: str | torch.device | None = None,
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    batch_tokens: int = BATCH_TOKENS,
) -> Rewriter:
    """Load a model for rewriting.

    Args:
        name: `paraphraser` (the embedded one), a folder that `polyphrase train` wrote, or any
            Hugging Face encoder-decoder (`starter`, a hub id, a folder) as it is, without a latent.
        device: where to compute; CUDA when there is one.
        precision: the number format in which words are searched for, where there is a choice
            (decoders like T5's); `auto` is bfloat16 where the processor multiplies it. The latent
            is float32 always, so z is the same.
        batch_tokens: how many tokens run at once at most: see `Rewriter`.
    """
    name = str(name)
    folder = str(files("polyphrase") / "pretrained" / name) if name == PARAPHRASER else name
    built = catalogue.load(folder)
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    backbone = getattr(built.model, "backbone", None)
    if isinstance(backbone, HuggingFaceBackbone) and (
        precision == "bfloat16" or (precision == "auto" and has_bfloat16(torch.device(device)))
    ):
        backbone.precision = torch.bfloat16
    return Rewriter(built.model.to(device), built.codec, name, batch_tokens)
