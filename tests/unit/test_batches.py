from hypothesis import given
from hypothesis import strategies as st

from polyphrase.api import batches
from polyphrase.decoding.settings import Search

LENGTHS = st.lists(st.integers(1, 512), max_size=60)


@given(
    LENGTHS,
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 100),
    st.integers(1, 60_000),
)
def test_every_text_runs_once_within_the_budget(
    lengths: list[int], n: int, beams: int, words: int, budget: int
) -> None:
    search = Search(beams=beams, max_length=words)
    found = list(batches(lengths, n, search, budget))
    assert sorted(row for batch in found for row in batch) == list(range(len(lengths)))
    for batch in found:
        longest = max(lengths[row] for row in batch)
        assert len(batch) == 1 or len(batch) * n * (longest + beams * words) <= budget


@given(LENGTHS.filter(bool), st.integers(1, 10))
def test_a_long_text_does_not_make_others_dear(lengths: list[int], n: int) -> None:
    search = Search(beams=2, max_length=30)
    for batch in batches([*lengths, 512], n, search, 10**9):
        held = [[*lengths, 512][row] + 60 for row in batch]
        assert max(held) <= 1.25 * min(held)


def test_a_long_text_costs_its_own_share_only() -> None:
    """The tokens held over all batches, padding included, grow by about those of the long text."""
    search = Search(beams=10, max_length=30)
    short = [12, 15, 9, 30, 22, 18] * 40

    def held(lengths: list[int]) -> int:
        return sum(
            len(batch) * (max(lengths[row] for row in batch) + 300)
            for batch in batches(lengths, 10, search, 25_000)
        )

    assert held([*short, 512]) - held(short) <= 1.1 * (512 + 300)
