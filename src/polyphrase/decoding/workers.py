"""Several batches at a time, each on cores of its own."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from threading import Barrier
from types import TracebackType
from typing import Self, TypeVar

import torch

T = TypeVar("T")

_MOST = 8  # since each worker's batch takes memory of its own


def worker_count(device: torch.device) -> int:
    """As many as the cores that torch computes with, up to a bound; 1 on an accelerator."""
    return min(torch.get_num_threads(), _MOST) if device.type == "cpu" else 1


class Workers:
    """Threads that each compute on their share of the processor's cores.

    A step of decoding is many small operations. Cut over all cores, each of them waits for the
    slowest core, and what one core has written another must fetch: two batches side by side, one
    core each, take two thirds of the time of one after the other, both cores each (docs/speed.md).

    Args:
        count: how many; with one, everything runs where it is asked for, with all cores.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def map(self, tasks: Iterable[Callable[[], T]]) -> Iterator[T]:
        """The results of tasks, in their order; a task alone runs here, with all cores."""
        waiting = iter(tasks)
        first = list(islice(waiting, 2))
        if self.count == 1 or len(first) < 2:
            yield from (task() for task in chain(first, waiting))
            return
        pool = self._started()
        running: deque[Future[T]] = deque()
        for task in chain(first, waiting):
            if len(running) > self.count:  # each has a task, and one lies ready
                yield running.popleft().result()
            running.append(pool.submit(task))
        while running:
            yield running.popleft().result()

    def _started(self) -> ThreadPoolExecutor:
        if self._pool is not None:
            return self._pool
        # torch keeps the number of cores for each thread, and a common one for threads to come.
        # Its first question makes a thread take that number over; what is set after stays.
        common = torch.get_num_threads()
        ready = Barrier(self.count + 1)

        def take_share() -> None:
            torch.get_num_threads()
            torch.set_num_threads(max(1, common // self.count))
            ready.wait()

        self._pool = ThreadPoolExecutor(self.count, "polyphrase", initializer=take_share)
        for _ in range(self.count):
            self._pool.submit(int)
        ready.wait()
        torch.set_num_threads(common)
        return self._pool
