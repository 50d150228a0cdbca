"""The hypervolume against counting the cells that are reached."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyphrase.evaluation.frontier import frontier, hypervolume

POINTS = st.lists(st.tuples(st.integers(-3, 20), st.integers(-3, 20)), max_size=8)


@given(points=POINTS)
def test_the_area_is_the_number_of_unit_cells_below_some_point(
    points: list[tuple[int, int]],
) -> None:
    cells = np.zeros((20, 20), dtype=bool)
    for x, y in points:
        cells[: max(x, 0), : max(y, 0)] = True
    assert hypervolume(points) == pytest.approx(cells.sum(), abs=1e-9)


@given(points=POINTS)
def test_the_frontier_is_what_no_other_point_reaches(points: list[tuple[int, int]]) -> None:
    kept = {
        (x, y)
        for x, y in points
        if not any(u >= x and v >= y and (u, v) != (x, y) for u, v in points)
    }
    assert set(frontier(points)) == kept
    assert frontier(points) == sorted(kept, reverse=True)
