"""Figures of a study's sections: heat maps, and parts of stacks."""

from itertools import combinations, pairwise
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from assay.analysis.comparison import analyse
from assay.analysis.factors.additivity import Grid, GridField
from assay.report.comparison.wording import title
from assay.report.kit.drawing import WIDTH, alone, wrap_row_name
from assay.report.study.sections.panels import Label, map_panels, part_panels, place_labels
from assay.report.study.view import StudyView
from support.comparisons import FACTORS, TREATMENTS, record
from support.drawn import words

DOWN = ("none", "placebo: mixed precision")


def grid(*across: str) -> Grid:
    field = GridField(row="a", change=0.1, column_change=None, deviation=0.02)
    fields = ((field,) * len(across),) * len(DOWN)
    return Grid(metric="step_seconds", across="shape", down="method", across_levels=across, down_levels=DOWN,
                fields=fields)  # fmt: skip


@pytest.mark.parametrize(
    "across",
    [
        ("heads x2", "embeddings x2", "layers x2"),
        ("default", "context x2", "layers x2", "embeddings x2"),
        ("activation_checkpointing", "gradient_accumulation", "sdpa_attention"),
    ],
)
def test_names_of_columns_do_not_touch(across: tuple[str, ...]) -> None:
    for panel in map_panels([grid(*across)], title):
        figure: Any = alone(panel)
        renderer = FigureCanvasAgg(figure).get_renderer()
        boxes = [label.get_window_extent(renderer) for label in figure.axes[0].get_xticklabels()]
        assert len(boxes) == len(across)
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_map_with_short_names_is_as_wide_as_other_panels() -> None:
    assert {panel.width for panel in map_panels([grid("8", "16")], title)} == {WIDTH}


def test_the_staircase_ends_at_the_sum_and_the_last_bar_is_the_whole() -> None:
    panels = part_panels(StudyView(analyse(record(seeds=3))))
    (panel,) = [one for one in panels if one.title.endswith("tensors, peak")]
    bars = alone(panel).axes[0].patches
    parts, whole = bars[:3], bars[-1]
    ends = [bar.get_x() + bar.get_width() for bar in parts]
    assert [bar.get_x() for bar in parts] == pytest.approx([0, *ends[:-1]])
    assert bars[3].get_width() == pytest.approx(ends[-1])
    assert whole.get_width() == pytest.approx(100 * (FACTORS[TREATMENTS[4]][0] - 1), abs=0.01)


def test_every_metric_in_bytes_or_seconds_has_a_panel_with_all_names() -> None:
    panels = part_panels(StudyView(analyse(record())))
    assert [one.title.rpartition(": ")[2] for one in panels] == ["tensors, peak", "process, peak", "step time"]
    text = words(panels)
    for name in ("sdpa_attention", "bf16_mixed", "activation_checkpointing", "sum of the parts", "all together"):
        assert text.count(name) >= 3


def test_without_a_stack_there_are_no_parts() -> None:
    assert part_panels(StudyView(analyse(record(treatments=TREATMENTS[:2])))) == ()


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
@pytest.mark.parametrize("width", [4.3, 5.2])
def test_each_point_has_its_name_and_no_name_lies_on_another(first: str, width: float) -> None:
    from matplotlib.figure import Figure

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
