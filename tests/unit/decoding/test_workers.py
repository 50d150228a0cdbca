"""Batches side by side: in order, on one core each, with the results of one after the other."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from polyphrase.api import load
from polyphrase.decoding.settings import Search
from polyphrase.decoding.workers import Workers, worker_count


@pytest.fixture
def two_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def threads() -> tuple[str, int]:
    time.sleep(0.01)
    return threading.current_thread().name, torch.get_num_threads()


def test_each_worker_has_one_core_and_the_caller_keeps_its_own(two_cores: None) -> None:
    with Workers(2) as workers:
        found = list(workers.map([threads] * 6))
        assert {cores for _, cores in found} == {1}
        assert len({name for name, _ in found}) == 2
        assert torch.get_num_threads() == 2
        assert list(workers.map([threads])) == [(threading.current_thread().name, 2)]
        assert list(workers.map([])) == []
    other: list[int] = []
    later = threading.Thread(target=lambda: other.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert other == [2]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_come_in_order_and_tasks_are_read_as_needed(count: int) -> None:
    begun: list[int] = []

    def task(number: int) -> int:
        begun.append(number)
        time.sleep(0.002 * (7 - number))
        return number

    read: list[int] = []

    def tasks() -> Iterator[Callable[[], int]]:
        for number in range(8):
            read.append(number)
            yield partial(task, number)

    with Workers(count) as workers:
        results = workers.map(tasks())
        assert next(results) == 0
        assert len(read) <= count + 2
        assert list(results) == list(range(1, 8))
    assert sorted(begun) == list(range(8))


def test_a_fault_reaches_the_caller_and_threads_end() -> None:
    before = threading.active_count()

    def fault() -> int:
        raise ValueError("as it was")

    tasks: list[Callable[[], int]] = [int, fault, int, int, int]
    with pytest.raises(ValueError, match="as it was"), Workers(2) as workers:
        list(workers.map(tasks))
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "search", [Search(beams=3, max_length=8), Search(method="sample", max_length=8)]
)
def test_text_does_not_depend_on_the_number_of_cores(
    two_cores: None, tiny_model: Path, search: Search
) -> None:
    texts = ["how do i learn music ?", "what ?", "how do people buy books now ?"] * 4
    rewriter = load(tiny_model, device="cpu", precision="float32", batch_tokens=300)
    assert worker_count(torch.device("cpu")) == 2
    together = rewriter.generate(texts, n=4, seed=1, search=search)
    one = rewriter.generate(texts[:1], n=4, seed=1, search=search)  # its samples side by side
    torch.set_num_threads(1)
    assert rewriter.generate(texts, n=4, seed=1, search=search) == together
    assert one == together[:1]
