"""Deviations from additivity as tables, one for each metric, with a figure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.factors.additivity import deviations
from assay.report.blocks import Block, Table
from assay.report.study.factors.wording import as_ratio, in_points, is_exact, row_name, title, too_few
from assay.report.study.section import Section
from assay.units import format_percent

if TYPE_CHECKING:
    from assay.report.page.panels import Panel
    from assay.report.study.view import StudyView

_MOST_DRAWN = 30
"""Most rows in the figure."""
_COLUMNS = ("change", "sum of parts", "deviation in points", "deviation as a ratio")


def _content(study: "StudyView") -> Iterator[Block]:
    found = study.of(deviations)
    for one in found:
        rows = (
            (
                row_name(row.changes, row.row),
                format_percent(row.change),
                format_percent(row.expected),
                in_points(row.points),
                as_ratio(row.ratio),
            )
            for row in one.deviations
        )
        # The sum of the parts follows from the change and the deviation in points.
        yield Table.of((title(one.metric), *_COLUMNS), rows, right=_COLUMNS, spare=("sum of parts",))
    if found:
        yield (
            "Each row changes several things at once; its parts are rows that change one of them alone. "
            "The deviation in points is the change of the row less the sum of the changes of its parts. "
            "As a ratio, it compares the row with the product of its parts: savings that multiply deviate in points, "
            "and not as a ratio. Below zero, the parts together give a lower figure than expected."
        )
        if any(one.bounded for one in found):
            yield "Brackets are intervals. All intervals of a metric on one scale hold together in 95 % of studies."
        yield from too_few([(one.metric, one.bounded) for one in found])


def _values(study: "StudyView") -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") for one in study.of(deviations)]


def _panels(study: "StudyView") -> "tuple[Panel, ...]":
    # The page's style is imported here, because the page imports all sections.
    from assay.report.study.factors.drawing import Estimates, estimate_panels
    from assay.report.study.factors.parts import part_panels

    found = []
    for one in study.of(deviations):
        shown = {row_name(row.changes, row.row): row.points for row in one.deviations}
        found.append(Estimates(title(one.metric), shown, is_exact(one.metric)))
    if any(len(one.by_row) > _MOST_DRAWN for one in found):
        return part_panels(study)
    return (*part_panels(study), *estimate_panels(found, "deviation, percentage points"))


SECTION = Section(
    "additivity",
    "Do the changes add up?",
    _content,
    _values,
    _panels,
    "Staircases: each part begins where the one above it ends, so the last one ends at their sum; the bar below is the "
    "measured change of all together. Points: the deviation from this sum with its 95 % interval. Left of the line, "
    "the figure is lower than the sum.",
)
