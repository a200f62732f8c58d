"""Heat maps: names of columns keep apart, whatever their length."""

from itertools import pairwise
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from assay.analysis.factors.additivity import Grid, GridField
from assay.report.page.panels import WIDTH, alone
from assay.report.study.factors.heat_map import map_panels
from assay.report.study.factors.wording import title

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
