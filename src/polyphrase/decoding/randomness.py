"""Named streams of random numbers: a sample depends on its own name and on nothing else."""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def stream(seed: int, source: str, sample: int, purpose: str) -> torch.Generator:
    """The generator of one sample of one source.

    The same (seed, source, sample) gives the same numbers whatever else is in the batch, however
    many samples are asked for and however wide the search is. Always on the CPU, so that the
    device does not matter either.
    """
    name = f"{seed}\0{sample}\0{purpose}\0{source}".encode(errors="surrogatepass")
    digest = hashlib.blake2b(name, digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def latent_noise(
    seed: int, sources: Sequence[str], samples: Sequence[int], mask: Tensor, size: int
) -> Tensor:
    """Standard normal noise for z, `[S, B, N, D]`, zero at padding.

    Args:
        seed: the user's seed.
        sources: B texts.
        samples: S sample numbers.
        mask: real positions, `[B, N]`.
        size: D.
    """
    mask = mask.cpu()
    noise = torch.zeros(len(samples), len(sources), mask.shape[1], size)
    for row, source in enumerate(sources):
        real = mask[row].nonzero()[:, 0]
        for column, sample in enumerate(samples):
            generator = stream(seed, source, sample, "z")
            noise[column, row, real] = torch.randn(len(real), size, generator=generator)
    return noise


def word_uniforms(
    seed: int,
    sources: Sequence[str],
    samples: Sequence[int],
    length: int,
    purpose: str = "words",
) -> Tensor:
    """Uniform numbers, one for each word, `[B * S, T]`: for drawing it, or for another purpose."""
    return torch.stack(
        [
            torch.rand(length, generator=stream(seed, source, sample, purpose))
            for source in sources
            for sample in samples
        ]
    )
