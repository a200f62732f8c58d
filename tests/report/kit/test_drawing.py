"""Panels: each alone is narrow and has equal bytes every time; together they are one figure."""

import re

import pytest

from assay.analysis.comparison import analyse
from assay.report.comparison.figures import FIGURES
from assay.report.kit.drawing import (
    DARK,
    LIGHT,
    SMALL,
    WIDTH,
    Panel,
    alone,
    series,
    svg,
    together,
    variable,
    wrap_row_name,
)
from support.comparisons import record


def test_no_panel_is_wider_than_a_narrow_screen_can_show() -> None:
    comparison = analyse(record())
    drawn = [panel for panels in FIGURES.values() for panel in panels(comparison)]
    assert len(drawn) > 20
    assert {panel.width for panel in drawn} <= {WIDTH, SMALL}
    assert all(panel.left < panel.width / 2 for panel in drawn)


def test_a_panel_is_the_same_every_time() -> None:
    first, again = (svg(alone(FIGURES["memory"](analyse(record()))[0]), "memory") for _ in range(2))
    assert first == again


def test_panels_together_have_their_titles_and_nothing_where_there_are_none() -> None:
    made = together([Panel(title, lambda axis: axis.plot([0, 1])) for title in ("first", "second", "third")])
    assert made is not None
    assert [axis.get_title(loc="left") for axis in made.axes if axis.get_visible()] == ["first", "second", "third"]
    assert together(()) is None


def test_names_make_room_at_the_left() -> None:
    long = Panel("", lambda axis: None, names=("sdpa_attention\n+ bf16_mixed",))
    assert long.left > Panel("", lambda axis: None).left


def test_a_panel_keeps_the_colours_of_the_page() -> None:
    drawn = svg(alone(FIGURES["changes"](analyse(record()))[0]), "changes")
    assert not re.search(r"#[0-9a-f]{6}\b", drawn)
    assert 'class="small"' in drawn


def test_the_baseline_keeps_its_colour_and_neighbours_differ() -> None:
    assert len(LIGHT) == len(DARK)
    names = [variable(number) for number in range(12)]
    assert names.count(names[0]) == 1
    assert all(series(number) != series(number + 1) for number in range(20))


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("sdpa_attention + bf16_mixed", ["sdpa_attention", "+ bf16_mixed"]),
        ("context × 2 · sgd", ["context × 2", "· sgd"]),
        ("mixed precision, batch 28", ["mixed precision,", "batch 28"]),
        ("gradient_accumulation:micro_batches=4", ["gradient_accumulation:micro_batches=4"]),
        ("placebo: a gradient scaler that scales", ["placebo: a gradient scaler", "that scales"]),
    ],
)
def test_names_are_broken_where_a_reader_would(name: str, lines: list[str]) -> None:
    assert wrap_row_name(name).split("\n") == lines


def test_panels_together_have_one_legend() -> None:
    made = together(FIGURES["memory"](analyse(record())))
    assert made is not None
    (legend,) = made.legends
    assert [one.get_text() for one in legend.get_texts()] == ["weights", "saved for backward"]
