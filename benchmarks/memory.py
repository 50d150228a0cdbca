"""Memory is set, not hit: many inputs of mixed length, and one long input among short ones."""

import json
import random
import resource
import subprocess
import sys
import time

from polyphrase import Search, load
from polyphrase.allocator import keep_big_buffers

from .sentences import SENTENCES, of_length
from .table import Line

SEARCH = Search(method="greedy", max_length=8)  # short, so that ten thousand are soon read


def mixed(count: int) -> list[str]:
    """Texts of 4 to 60 words, some of 400."""
    chance = random.Random(0)
    return [
        of_length(400 if number % 500 == 499 else chance.randint(4, 60), number)
        for number in range(count)
    ]


def peak() -> float:
    """The most memory that this process has held so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def child(count: int) -> dict[str, float]:
    """Rewrite so many texts; the peak of memory after a hundredth and after all."""
    keep_big_buffers()
    rewriter = load()
    texts = mixed(count)
    for _ in rewriter.rewrite(texts[: count // 10], n=1, search=SEARCH):
        pass
    before, start = peak(), time.perf_counter()
    for _ in rewriter.rewrite(texts, n=1, search=SEARCH):
        pass
    return {"before": before, "after": peak(), "seconds": time.perf_counter() - start}


def measure(quick: bool) -> list[Line]:
    """The lines of the table about memory."""
    count = 1_000 if quick else 10_000
    run = [sys.executable, "-m", "benchmarks.memory", str(count)]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    found = json.loads(output.splitlines()[-1])
    rewriter = load()
    short, long = list(SENTENCES[:15]), of_length(500)
    search = Search(beams=4, max_length=24, min_length=16)

    def rewrite(texts: list[str]) -> float:
        start = time.perf_counter()
        rewriter.generate(texts, n=4, search=search)
        return time.perf_counter() - start

    rewrite(short)
    times = [(rewrite(short), rewrite([long]), rewrite([*short, long])) for _ in range(3)]
    alone, own, together = (min(part) for part in zip(*times, strict=True))
    return [
        Line(
            f"peak memory after {count} mixed inputs / after a tenth of them",
            found["after"] / found["before"],
            1.2,
            False,
            f"{found['after']:.2f} against {found['before']:.2f} GiB, "
            f"{count / found['seconds']:.0f} inputs/s, greedy",
        ),
        Line(
            "one 512-token input among 15 short ones / the two apart",
            together / (alone + own),
            1.1,
            False,
            f"{together:.2f} against {alone:.2f} + {own:.2f} s",
        ),
    ]


if __name__ == "__main__":
    print(json.dumps(child(int(sys.argv[1]))))
