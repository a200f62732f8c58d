"""Pareto front as a table, and memory against time as a figure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.choose.criteria import Criterion
from assay.analysis.choose.ranking import Standing, frontier
from assay.report.blocks import Block, Table
from assay.report.formats import UNKNOWN, quantity
from assay.report.study.choices.wording import in_nats, names
from assay.report.study.section import Section
from assay.report.wording import status

if TYPE_CHECKING:
    from assay.report.page.panels import Panel
    from assay.report.study.view import StudyView


def _content(study: "StudyView") -> Iterator[Block]:
    comparison, found = study.comparison, study.of(frontier)
    if len(found.criteria) < 2:
        return
    titles = [_title(one) for one in found.criteria]
    rows = (
        (one.row.treatment, *(_text(criterion, one) for criterion in found.criteria), _place(one)) for one in found.rows
    )
    yield Table.of(("row", *titles, "place"), rows, right=titles, spare=titles[::-1])
    yield (
        "A row is dominated if another is better in one of these figures and at least as good in the others. Times "
        "and memory that cannot be told apart count as the same, and losses within "
        f"{comparison.record.loss_margin:g}{in_nats(comparison)}. “By its figures” means that a difference has no "
        "interval, or is not shown."
    )


def _title(one: Criterion) -> str:
    return "all steps" if one.name == "time" else one.metric.title


def _text(criterion: Criterion, one: Standing) -> str:
    known = one.figures.get(criterion.name)
    return UNKNOWN if known is None else quantity(known, criterion.metric.unit)


def _place(one: Standing) -> str:
    if not one.figures:
        return status(one.row) or "not measured"
    if one.on_front:
        return "on the front"
    return f"dominated by {names(one.dominated_by, 1)}{'' if one.sure else ', by its figures'}"


def _values(study: "StudyView") -> list[dict[str, Any]]:
    return [
        {
            "row": one.row.treatment,
            "status": one.row.status.value,
            "figures": dict(one.figures),
            "on_front": one.on_front,
            "dominated_by": list(one.dominated_by),
            "shown_by_intervals": one.sure,
        }
        for one in study.of(frontier).rows
    ]


def _panels(study: "StudyView") -> "tuple[Panel, ...]":
    from assay.report.study.choices.drawing import front_panels  # the room of pages imports that of sections

    return front_panels(study)


SECTION = Section(
    "pareto_front",
    "Rows that no other beats",
    _content,
    _values,
    _panels,
    "Lower left is better. Filled points are on the front, hollow ones are dominated. The front also counts the loss "
    "and the bytes communicated, where rows differ in them, so it is no line in this plane. Names without room are "
    "left out.",
    printed=False,
)
