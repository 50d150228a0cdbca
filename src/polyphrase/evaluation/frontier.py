"""The frontier of quality and diversity of a system swept over its knob, and its hypervolume.

A setting of the knob is a point (quality, diversity). The hypervolume (Zitzler and Thiele, 1998) is
the area of all that is reached: of the points (x, y) >= 0 with x <= quality and y <= diversity of
some setting. It needs no single setting to be chosen, and one system's is larger wherever it
is ahead of another one at the same diversity.
"""

from collections.abc import Iterable

Point = tuple[float, float]


def frontier(points: Iterable[Point]) -> list[Point]:
    """The points that no other one reaches in both coordinates, by falling quality."""
    kept: list[Point] = []
    for point in sorted(set(points), reverse=True):
        if not kept or point[1] > kept[-1][1]:
            kept.append(point)
    return kept


def hypervolume(points: Iterable[Point]) -> float:
    """The area between the frontier and (0, 0)."""
    area = below = 0.0
    for quality, diversity in frontier(points):
        if quality > 0 and diversity > below:
            area += quality * (diversity - below)
            below = diversity
    return area
