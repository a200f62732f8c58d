"""Percent changes by two factors as tables, with heat maps of the changes and of their deviation from additivity."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.factors.additivity import GridField, grids
from assay.analysis.factors.layout import level_name
from assay.report.blocks import Block, Table
from assay.report.formats import UNKNOWN
from assay.report.study.factors.wording import title
from assay.report.study.section import Section
from assay.units import format_percent

if TYPE_CHECKING:
    from assay.report.page.panels import Panel
    from assay.report.study.view import StudyView


def _content(study: "StudyView") -> Iterator[Block]:
    found = study.of(grids)
    for grid in found:
        columns = [level_name(grid.across, level) for level in grid.across_levels]
        rows = (
            (level_name(grid.down, level), *(_text(one) for one in fields))
            for level, fields in zip(grid.down_levels, grid.fields, strict=True)
        )
        yield Table.of((title(grid.metric), *columns), rows, right=columns)
    if found:
        yield (
            "Each field has the change against the control and, in parentheses, the change against the first row of "
            "its column. All other factors are at the control's level."
        )


def _text(one: GridField | None) -> str:
    if one is None:
        return UNKNOWN
    own = "" if one.column_change is None else f" ({format_percent(one.column_change)})"
    return f"{format_percent(one.change)}{own}"


def _values(study: "StudyView") -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") for one in study.of(grids)]


def _panels(study: "StudyView") -> "tuple[Panel, ...]":
    # The page's style is imported here, because the page imports all sections.
    from assay.report.study.factors.heat_map import map_panels

    return map_panels(study.of(grids), title)


SECTION = Section(
    "percent_changes",
    "Percent change by factor",
    _content,
    _values,
    _panels,
    "Change against the control in percent, and deviation from the sum of the single changes in percentage "
    "points. Blue is lower, orange is higher; the colour is strongest at the largest number of a map, or at 5.",
    printed=False,
)
