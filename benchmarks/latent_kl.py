"""The KL of the Gaussian-process latent: its speed, its numbers over the whole grid, its memory.

    python -m benchmarks.latent_kl [--rounds 5] [--only speed|grid|memory]

Speed: 16 sentences of 50 positions and 768 dimensions, forward and backward, in float32 as in
training; ours and the two other ways alternate, and the median of the rounds' ratios counts. The
values are compared in float64.

Grid: every v, r and N that the paper searches, against general solvers in float64.

Memory: 16 sentences of 512 positions; what tensors hold beyond the inputs at the highest point, the
gradients of the inputs included, as torch's profiler counts it. A fresh process grows by more: by
what libraries load at first use, and by what glibc keeps of freed buffers; so a second process,
whose malloc returns them, is measured beside it.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence
from torch.profiler import ProfilerActivity, profile

from polyphrase.latent import Beliefs, KernelConfig, Latent, LatentConfig
from polyphrase.latent.beliefs import Block
from polyphrase.latent.kernels import Kernel
from polyphrase.latent.ragged import Ragged

Form = Literal["correlated", "diagonal"]
FORMS: tuple[Form, ...] = ("correlated", "diagonal")
Inputs = tuple[Tensor, Tensor, Tensor]
KERNEL = KernelConfig(scale="absolute", v=1.0, r=20.0)  # r near half the states' distance


def inputs(sentences: int, positions: int, dimensions: int, dtype: torch.dtype) -> Inputs:
    """States h (the prior's mean), the posterior's mean, and its log-variance over the prior's."""
    torch.manual_seed(0)
    h = torch.randn(sentences, positions, dimensions, dtype=dtype)
    mean = h + 0.1 * torch.randn_like(h)
    log_ratio = 0.5 * torch.randn_like(h)
    return h.requires_grad_(), mean.requires_grad_(), log_ratio.requires_grad_()


def ours(form: Form, h: Tensor, mean: Tensor, log_ratio: Tensor) -> Tensor:
    """The library's KL of each sentence, given what its networks would say."""
    config = LatentConfig(posterior=form, kernel=KERNEL)
    kernel = Kernel(KERNEL)
    ragged = Ragged(torch.ones(h.shape[:2], device=h.device), h.shape[-1])
    parts = zip(*(ragged.split(x) for x in (h, mean, log_ratio)), strict=True)
    blocks = [
        Block(config, kernel=kernel, states=x, prior=x, mean=m, log_variance=g) for x, m, g in parts
    ]
    return Beliefs(config, ragged, blocks, h.dtype).kl()


def covariance(h: Tensor) -> Tensor:
    """A of each sentence, [B, N, N]."""
    shape = torch.exp(-torch.cdist(h, h).square() / (2 * KERNEL.r**2))
    return KERNEL.v**2 * (shape + KERNEL.noise * torch.eye(h.shape[1], dtype=h.dtype))


def posterior_covariance(form: Form, a: Tensor, t: Tensor) -> Tensor:
    """diag(t) M diag(t) for t [..., N], with M = A or its diagonal."""
    base = a if form == "correlated" else torch.diag_embed(a.diagonal(dim1=-2, dim2=-1))
    return t.unsqueeze(-1) * base * t.unsqueeze(-2)


def normals_in_turn(form: Form, h: Tensor, mean: Tensor, log_ratio: Tensor) -> Tensor:
    """`MultivariateNormal` per dimension, one dimension of the batch after the other."""
    a, t = covariance(h), (0.5 * log_ratio).exp()
    total = h.new_zeros(len(h))
    for d in range(h.shape[-1]):
        q = MultivariateNormal(mean[..., d], posterior_covariance(form, a, t[..., d]))
        total = total + kl_divergence(q, MultivariateNormal(h[..., d], a))
    return total


def normals_at_once(form: Form, h: Tensor, mean: Tensor, log_ratio: Tensor) -> Tensor:
    """`MultivariateNormal` per dimension, all dimensions in one batch."""
    a, t = covariance(h).unsqueeze(1), (0.5 * log_ratio).exp().mT
    q = MultivariateNormal(mean.mT, posterior_covariance(form, a, t))
    p = MultivariateNormal(h.mT, a.expand(-1, h.shape[-1], -1, -1))
    return kl_divergence(q, p).sum(1)


def double_loop(form: Form, h: Tensor, mean: Tensor, log_ratio: Tensor) -> Tensor:
    """The kernel by a loop over pairs of positions, as the paper's code has it."""
    n, dimensions = h.shape[1:]
    rows = []
    for i in range(n):
        row = []
        for j in range(n):
            squared = (h[:, i] - h[:, j]).square().sum(-1)
            row.append(KERNEL.v**2 * torch.exp(-squared / (2 * KERNEL.r**2)))
        rows.append(torch.stack(row, -1))
    a = torch.stack(rows, 1) + KERNEL.v**2 * KERNEL.noise * torch.eye(n, dtype=h.dtype)
    precision, delta, t = torch.linalg.inv(a), mean - h, (0.5 * log_ratio).exp()
    base = posterior_covariance(form, a, torch.ones(n, dtype=h.dtype))
    trace = (t * ((precision * base) @ t)).sum((1, 2))
    quadratic = (delta * (precision @ delta)).sum((1, 2))
    logdets = torch.logdet(a) - torch.logdet(base)
    return 0.5 * (trace + quadratic + dimensions * (logdets - n) - log_ratio.sum((1, 2)))


def seconds(function: Callable[..., Tensor], leaves: Inputs) -> float:
    """What one forward and backward pass takes."""
    start = time.perf_counter()
    function(*leaves).sum().backward()
    taken = time.perf_counter() - start
    for leaf in leaves:
        leaf.grad = None
    return taken


def speed(rounds: int) -> dict[str, Any]:
    """Ours against the two other ways, for both posteriors."""
    result: dict[str, Any] = {}
    for form in FORMS:
        leaves = inputs(16, 50, 768, torch.float32)
        mine = partial(ours, form)
        others = {"normals": partial(normals_in_turn, form), "loop": partial(double_loop, form)}
        for function in (mine, *others.values()):
            seconds(function, leaves)
        ratios: dict[str, list[float]] = {name: [] for name in others}
        times: dict[str, list[float]] = {name: [] for name in ("ours", *others)}
        for _ in range(rounds):
            for name, function in others.items():
                before = [seconds(mine, leaves) for _ in range(10)]
                theirs = seconds(function, leaves)
                after = [seconds(mine, leaves) for _ in range(10)]
                times["ours"].append(statistics.median(before + after))
                times[name].append(theirs)
                ratios[name].append(theirs / times["ours"][-1])
        wide = inputs(16, 50, 768, torch.float64)
        with torch.no_grad():
            value = mine(*wide)
            errors = {
                name: float(((function(*wide) - value) / value).abs().max())
                for name, function in others.items()
            }
        result[form] = {
            "milliseconds": {k: round(1e3 * statistics.median(v), 2) for k, v in times.items()},
            "times_faster_than": {k: round(statistics.median(v), 1) for k, v in ratios.items()},
            "range": {k: [round(min(v), 1), round(max(v), 1)] for k, v in ratios.items()},
            "normals_at_once_milliseconds": round(
                1e3 * seconds(partial(normals_at_once, form), leaves), 1
            ),
            "relative_difference_in_float64": errors,
        }
    return result


def reference(form: Form, a: Tensor, delta: Tensor, log_ratio: Tensor) -> float:
    """The KL of one sentence in float64 by general solvers: no Cholesky, no Gram matrix."""
    base = posterior_covariance(form, a, torch.ones(len(a), dtype=a.dtype))
    t = (0.5 * log_ratio).exp()
    trace = (t * ((torch.linalg.inv(a) * base) @ t)).sum()
    quadratic = (delta * torch.linalg.solve(a, delta)).sum()
    logdets = torch.linalg.slogdet(a).logabsdet - torch.linalg.slogdet(base).logabsdet
    n, dimensions = delta.shape
    return float(0.5 * (trace + quadratic + dimensions * (logdets - n) - log_ratio.sum()))


def grid(dimensions: int = 768) -> dict[str, Any]:
    """Every v, r and N of the search, repeated positions, bf16 states: what is lost?"""
    worst, place, finite, count = 0.0, {}, True, 0
    for n in (1, 2, 50, 512):
        torch.manual_seed(n)
        h = torch.randn(1, (n + 1) // 2, dimensions).repeat(1, 2, 1)[:, :n].bfloat16()
        wide = h[0].double()
        squares = torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist").square()
        for form in FORMS:
            for v in (0.01, 0.1, 1.0, 10.0, 100.0):
                for r in (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0):
                    kernel = KernelConfig(scale="absolute", v=v, r=r)
                    latent = Latent(LatentConfig(posterior=form, kernel=kernel), dimensions)
                    with torch.no_grad():  # a posterior that is some 0.3 deviations off its prior
                        latent.posterior.mean.weight.normal_(0, 0.3 * v / math.sqrt(dimensions))
                        latent.posterior.log_variance.weight.normal_(0, 0.3 / math.sqrt(dimensions))
                    states = h.clone().requires_grad_()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # of a white process: it is meant here
                        kl = latent(states, torch.ones(1, n)).kl()
                    kl.sum().backward()
                    gradients = [states.grad, *(p.grad for p in latent.parameters())]
                    finite &= all(g is not None and bool(g.isfinite().all()) for g in gradients)
                    with torch.no_grad():
                        delta = latent.posterior.mean(h[0].float()).double()
                        log_ratio = latent.posterior.log_variance(h[0].float()).double()
                    a = v**2 * (torch.exp(-squares / (2 * r**2)) + 0.01 * torch.eye(n).double())
                    expected = reference(form, a, delta, log_ratio)
                    error = abs(kl.item() - expected) / expected
                    finite &= math.isfinite(error)
                    count += 1
                    if not error <= worst:
                        worst = error
                        place = {"v": v, "r": r, "N": n, "posterior": form, "kl": expected}
    return {"points": count, "all_finite": finite, "worst_relative_error": worst, "at": place}


def peak(function: Callable[..., Tensor], leaves: Inputs) -> float:
    """The most that tensors hold at once beyond the inputs, in MB of 10⁶ bytes."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function(*leaves).sum().backward()
    events = profiler.profiler.kineto_results.events()
    changes = sorted(
        (event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"
    )
    held = highest = 0
    for _, change in changes:
        held += change
        highest = max(highest, held)
    return highest / 1e6


def growth(form: Form) -> float:
    """How much this process, a fresh one, grows at most in one pass, in MB of 10⁶ bytes."""
    seconds(partial(ours, form), inputs(1, 4, 8, torch.float32))  # loads what is loaded late
    leaves = inputs(16, 512, 768, torch.float32)
    sizes, done = [resident()], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            sizes.append(resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    ours(form, *leaves).sum().backward()
    done.set()
    watcher.join()
    return max(sizes) - sizes[0]


def resident() -> float:
    """This process's resident memory, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def memory() -> dict[str, Any]:
    """The highest point for both posteriors, in MB; what the inputs take is not counted."""
    result: dict[str, Any] = {}
    for form in FORMS:
        leaves = inputs(16, 512, 768, torch.float32)
        result[form] = {
            "tensors": round(peak(partial(ours, form), leaves), 1),
            "of_these_gradients": round(3 * leaves[0].numel() * 4 / 1e6, 1),
        }
        for name, setting in {
            "process": {},
            "process_that_returns_buffers": {"MALLOC_MMAP_THRESHOLD_": str(2**18)},
        }.items():
            child = subprocess.run(
                [sys.executable, "-m", "benchmarks.latent_kl", "--growth", form],
                env=os.environ | setting,
                capture_output=True,
                text=True,
                check=True,
            )
            result[form][name] = round(float(child.stdout), 1)
    return result


PARTS: dict[str, Callable[[], dict[str, Any]]] = {"grid": grid, "memory": memory}


def measure(rounds: int = 5) -> dict[str, Any]:
    """All of it."""
    return {"speed": speed(rounds), **{name: part() for name, part in PARTS.items()}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["speed", *PARTS])
    parser.add_argument("--growth", choices=FORMS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.growth:
        print(growth(arguments.growth))
    elif arguments.only in PARTS:
        print(json.dumps(PARTS[arguments.only](), indent=2))
    elif arguments.only == "speed":
        print(json.dumps(speed(arguments.rounds), indent=2))
    else:
        print(json.dumps(measure(arguments.rounds), indent=2))
