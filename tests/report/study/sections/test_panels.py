"""Figures of a study's sections: heat maps, and parts of stacks."""

from itertools import pairwise
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from assay.analysis.comparison import analyse
from assay.analysis.factors.additivity import Grid, GridField
from assay.report.comparison.wording import title
from assay.report.kit.drawing import WIDTH, alone
from assay.report.study.sections.panels import map_panels, part_panels
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
