"""How the embedded paraphraser is made: clean pairs out of Twitter URL, then `polyphrase train`.

    python tools/paraphraser.py --data trn.tsv.gz --out FOLDER

Tweets about one headline are rewrites of each other, but most carry a hashtag, a comment or half a
word. Kept are whole sentences in sentence case, each with a full stop or a question mark at its
end; paired are those of one headline that mean the same (cosine of sentence embeddings), are about
as long, name nothing and nobody new, and still share less than most of their words. Headlines, with
all their tweets, are in training, in validation or in neither (test), by a hash. What is done
already is not done again; training goes on where it stopped. The model is then written in half
precision, as the package holds it, to FOLDER/paraphraser.
"""

import argparse
import hashlib
import random
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

from safetensors.torch import load_file, save_file

from polyphrase.data.readers import read_examples
from polyphrase.files import write_text
from polyphrase.metrics.semantic import EMBEDDER, embed
from polyphrase.text import normal_form

SAME_MEANING = 0.8  # cosine; unrelated tweets about one headline are below 0.6
MOST_SHARED = 0.7  # of the words of both
PER_SOURCE, PER_HEADLINE = 4, 24  # so that few headlines do not drown the others

NOT_A_SENTENCE = re.compile(
    r"""[@#|_*~<>\[\]{}=^\\/"“”&!;:()]|[^\x00-\x7f]|https?|www|\.\.|[,-]\.|\s-\s|-\s|'\s|\s'|pic\.
    |\b[A-Z]{6,}\b|\s\d+\W?$|(?i:\b(?:rt|nyt|bbc|cnn|test|via|gt|lt|amp|com|lol|wtf|ass\w*|dumb\w*
    |shit\w*|fuck\w*|moron\w*|idiot\w*|loser\w*|drumpf|thugs?|pos|libtards?|nut|idiotic|disgusting|retweet|omg|ppl|u|ur|ya|shld|hmm+|cunt\w*|htt|pls)\b)""",
    re.VERBOSE,
)
SECOND_SENTENCE = re.compile(
    r"""[.?]\s+[A-Z0-9]|[a-z0-9,]\s(?:An?|The|It|This|That|These|But|No|He|She|They|You|We|In|On|If
    |What|How|Who|When|Why|Here|There|My|Your|One|Two|Three|And|So|Is|Are|At|As|For|Not|Just)\b""",
    re.VERBOSE,
)
UNFINISHED = re.compile(
    r"""\b(?:the|an?|of|to|for|and|or|in|on|with|by|at|as|from|is|are|was|were|has|have|had|said|my|his
    |her|its|their|that|this|these|who|which|can|could|will|would|may|be|been|not|after|before|than
    |about|into|over|more|most|because|if|but|when|while|how|what|where|your|our|\w{1,2})\W*$""",
    re.VERBOSE,
)


def natural(text: str) -> str:
    """The text with its punctuation where a reader expects it: tweets come as tokens."""
    text = re.sub(r"\s+([,.;:!?%)]|['’](?:s|t|re|ve|ll|d|m)\b)", r"\1", text)
    text = re.sub(r"([($])\s+", r"\1", " ".join(text.split()))
    return text if text[-1:] in (".", "?") else f"{text}."


def is_sentence(text: str) -> bool:
    """Whether a text reads as a sentence and not as a headline, a fragment or a tweet."""
    words = text.split()
    unfit = (NOT_A_SENTENCE, SECOND_SENTENCE, UNFINISHED)
    if any(pattern.search(text) for pattern in unfit) or not 5 <= len(words) <= 28:
        return False
    capitals = sum(word[0].isupper() for word in words[1:])
    return text[0].isupper() and capitals <= 0.4 * len(words[1:])


def rewrites(data: Path) -> dict[str, list[str]]:
    """The clean texts of each headline."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for example in read_examples(data):
        texts = [natural(text) for text in (example.source, *example.references)]
        for text in filter(is_sentence, texts):
            found[normal_form(texts[0])].setdefault(normal_form(text), text)
    return {headline: list(texts.values()) for headline, texts in found.items() if len(texts) > 1}


def pairs(headlines: dict[str, list[str]], seed: int) -> Iterator[tuple[str, str]]:
    """Ordered pairs of texts that say the same in other words."""
    chance = random.Random(seed)
    for texts in headlines.values():
        meanings = embed(texts, EMBEDDER)
        words = [frozenset(re.findall(r"\w+", text.lower())) for text in texts]
        names = [frozenset(re.findall(r"(?<=\s)[A-Z]\w+|\d+", text)) for text in texts]
        used = [0] * len(texts)
        order = list(permutations(range(len(texts)), 2))
        chance.shuffle(order)
        taken = 0
        for one, other in order:
            shared = len(words[one] & words[other]) / len(words[one] | words[other])
            longer = len(texts[other]) / len(texts[one])
            if (
                taken < PER_HEADLINE
                and used[one] < PER_SOURCE
                and 0.6 < longer < 1.5
                and shared < MOST_SHARED
                and texts[one][-1] == texts[other][-1]
                and {name.lower() for name in names[other]} <= words[one]
                and float(meanings[one] @ meanings[other]) > SAME_MEANING
            ):
                used[one] += 1
                taken += 1
                yield texts[one], texts[other]


def part(headline: str) -> str:
    """Where a headline belongs: 3% each are for validation and test."""
    number = int.from_bytes(hashlib.sha256(headline.encode()).digest()[:4], "big") % 100
    return "val" if number < 3 else "test" if number < 6 else "train"


def ship(model: Path, package: Path) -> None:
    """Write what the package holds of a model: the files that load it, weights in half the size."""
    package.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "generation_config.json", "README.md", "tokenizer*"):
        for file in model.glob(name):
            shutil.copy(file, package)
    weights = load_file(model / "model.safetensors")
    halves = {name: weight.half() for name, weight in weights.items()}
    save_file(halves, package / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    """Write the pairs, train, and write the package's folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="Twitter URL's training file")
    parser.add_argument("--out", type=Path, required=True, help="folder of pairs and model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("flags", nargs="*", help="more flags of polyphrase train, after --")
    options = parser.parse_args()
    files = {name: options.out / f"{name}.tsv" for name in ("train", "val", "test")}
    if not all(file.is_file() for file in files.values()):
        parts: dict[str, dict[str, list[str]]] = {name: {} for name in files}
        for headline, texts in rewrites(options.data).items():
            parts[part(headline)][headline] = texts
        for name, file in files.items():
            lines = [f"{source}\t{target}\n" for source, target in pairs(parts[name], options.seed)]
            write_text(file, "".join(lines))
            sys.stderr.write(f"{file}: {len(lines)} pairs\n")
    model = options.out / "model"
    search = options.out / "search.yaml"
    write_text(search, "search: {no_repeat_ngram: 3}\n")
    command = [
        "train",
        "--config",
        search,
        "--train",
        files["train"],
        "--val",
        files["val"],
        "--out",
        model,
        "--resume",
    ]
    command += ["--lora", "16", "--learning-rate", "5e-4", "--batch-size", "64", "--spread", "6"]
    command += ["--eval-every", "100", "--patience", "2", *options.flags]
    subprocess.run([sys.executable, "-m", "polyphrase", *map(str, command)], check=True)
    ship(model, options.out / "paraphraser")


if __name__ == "__main__":
    main()
