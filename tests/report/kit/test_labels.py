"""Names of points: each is written, and none lies on another."""

from itertools import combinations

import pytest
from matplotlib.figure import Figure

from assay.report.kit.drawing import wrap_row_name
from assay.report.kit.labels import Label, place_labels

POINTS = {
    "baseline": (0.575, 11.2),
    "sdpa_attention": (0.5, 9.7),
    "bf16_mixed": (0.556, 8.07),
    "activation_checkpointing": (0.79, 5.55),
    "gradient_accumulation": (0.9, 4.9),
    "sdpa_attention + bf16_mixed + activation_checkpointing": (1.36, 4.1),
}
"""Seconds and MiB of a demo, whose last row lies in a corner and has the longest name."""


@pytest.mark.parametrize("first", POINTS)
@pytest.mark.parametrize("width", [4.3, pytest.param(5.2, marks=pytest.mark.slow)])
def test_each_point_has_its_name_and_no_name_lies_on_another(first: str, width: float) -> None:
    axis = Figure(figsize=(width, 4.4)).subplots()
    for at in POINTS.values():
        axis.plot(*at, "o")
    axis.margins(0.18)
    names = sorted(POINTS, key=lambda name: name != first)
    place_labels(axis, [Label(wrap_row_name(name), POINTS[name]) for name in names])
    written = [one for one in axis.texts if one.get_text()]
    assert {one.get_text() for one in written} == set(map(wrap_row_name, POINTS))
    boxes = [one.get_window_extent() for one in written]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    frame = axis.get_window_extent()
    assert all(frame.x0 <= one.x0 and one.x1 <= frame.x1 and frame.y0 <= one.y0 and one.y1 <= frame.y1 for one in boxes)
