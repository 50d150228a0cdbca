"""The pairs of a run: read, measured, and none of them cut or empty without a word."""

import hashlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path

from ..data.codec import Codec
from ..data.readers import _references, _rows, _source
from ..data.vocabulary import VocabularyCodec
from ..errors import BadInput, PolyphraseWarning
from ..files import disk_errors

Pair = tuple[str, str]
PRINTS = "pairs.json"
"""The file of a model folder that tells the run's pairs from others."""
TOGETHER = 1024
"""The texts that are encoded at once."""


def read_pairs(path: str) -> list[Pair]:
    """A pair for each reference of each source.

    Raises:
        BadInput: as `read_examples`, and for an empty text.
    """
    pairs = []
    for where, row in _rows(path):
        source = _source(row, where)
        for target in _references(row, where):
            for name, text in (("source", source), ("target", target)):
                if not text.strip():
                    raise BadInput(f"{where}: the {name} is empty; remove the line or write one")
            pairs.append((source, target))
    return pairs


def fingerprints(train: Sequence[Pair], val: Sequence[Pair]) -> dict[str, str]:
    """SHA-256 of the training and of the validation pairs, whatever files they were read from."""
    return {"training": _fingerprint(train), "validation": _fingerprint(val)}


def _fingerprint(pairs: Sequence[Pair]) -> str:
    found = hashlib.sha256()
    for pair in pairs:
        found.update(json.dumps(pair).encode() + b"\n")
    return found.hexdigest()


def refuse_other_pairs(folder: Path, now: dict[str, str]) -> None:
    """Refuse to continue a run with other pairs than it began with, where it says which."""
    path = folder / PRINTS
    if not path.exists():  # written by a version that kept none
        return
    try:
        with disk_errors(path):
            then = json.loads(path.read_bytes())
        changed = [which for which in now if now[which] != then[which]]
    except (ValueError, KeyError, TypeError):
        raise BadInput(
            f"{path} is damaged: remove it to go on with the pairs that were given"
        ) from None
    if changed:
        raise BadInput(
            f"{folder} was begun with other {' and '.join(changed)} pairs: "
            "give the ones it began with, or another --out for a new run"
        )


def measure(codec: Codec, pairs: Sequence[Pair]) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Tokens of source and target of each pair, as they are read, and how many of each are cut."""
    sources, cut_sources = _measure(codec, [source for source, _ in pairs], codec.max_length)
    # The end of a target of words is one of the words that are read.
    room = codec.max_length - isinstance(codec, VocabularyCodec)
    targets, cut_targets = _measure(codec, [target for _, target in pairs], room)
    return list(zip(sources, targets, strict=True)), (cut_sources, cut_targets)


def _measure(codec: Codec, texts: Sequence[str], room: int) -> tuple[list[int], int]:
    lengths: list[int] = []
    cut = 0
    for start in range(0, len(texts), TOGETHER):
        encoded = codec.encode(texts[start : start + TOGETHER])
        tokens: list[int] = encoded.tensors["attention_mask"].sum(-1).tolist()
        lengths += tokens
        pairs = zip(encoded.truncated, tokens, strict=True)
        cut += sum(truncated or count > room for truncated, count in pairs)
    return lengths, cut


def tell_cut(cut: tuple[int, int], read: int, asked: int, strict: bool) -> None:
    """Say in one line how many texts lose their end.

    Args:
        cut: sources and targets that are longer than what is read.
        read: the most tokens of a text that are read.
        asked: the most that the settings would have read.
        strict: refuse instead.
    """
    counted = [
        f"{count} {name}{'' if count == 1 else 's'}"
        for count, name in zip(cut, ("source", "target"), strict=True)
        if count
    ]
    if not counted:
        return
    what = " and ".join(counted)
    remedy = f"{read} tokens: raise --max-length"
    if read < asked:
        remedy = f"{read} tokens, all that the model reads: shorten them"
    if strict:
        raise BadInput(f"{what} would be cut to {remedy}, or leave out --strict")
    verb = "was" if sum(cut) == 1 else "were"
    warnings.warn(f"{what} {verb} cut to {remedy}", PolyphraseWarning, stacklevel=2)
