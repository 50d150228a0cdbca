from hypothesis import given
from hypothesis import strategies as st

from polyphrase.training.trainer import LengthGrouped

LENGTHS = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=400)


@given(LENGTHS, st.integers(1, 32), st.integers(0, 99), st.integers(0, 9))
def test_every_pair_once_in_an_order_named_by_seed_and_epoch(
    lengths: list[tuple[int, int]], size: int, seed: int, epoch: int
) -> None:
    def order() -> list[int]:
        sampler = LengthGrouped(lengths, size, seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert sorted(order()) == list(range(len(lengths)))
    assert order() == order()


def test_batches_have_little_padding_and_come_in_no_order() -> None:
    lengths = [(5 + 7 * k % 41, 5 + 11 * k % 37) for k in range(4096)]
    order = list(LengthGrouped(lengths, 32, seed=0))
    batches = [[lengths[pair] for pair in order[k : k + 32]] for k in range(0, 4096, 32)]

    def held(batch: list[tuple[int, int]]) -> int:
        return len(batch) * sum(max(pair[side] for pair in batch) for side in (0, 1))

    real = sum(map(sum, lengths))
    assert sum(map(held, batches)) < 1.25 * real
    longest = [max(map(sum, batch)) for batch in batches]
    assert longest != sorted(longest)
    sampler = LengthGrouped(lengths, 32, seed=0)
    sampler.set_epoch(1)
    assert list(sampler) != order
