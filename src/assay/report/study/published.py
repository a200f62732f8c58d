"""A published study beside ours: its document, the changes of both, printed changes that its table contradicts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.claims import Beside, beside, recomputed
from assay.analysis.effects import Effect
from assay.records.published import PublishedColumn, PublishedStudy
from assay.report.blocks import Block, Facts, Table
from assay.report.formats import UNKNOWN
from assay.report.study.section import Section
from assay.report.wording import interval
from assay.units import format_percent

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


def document_facts(published: PublishedStudy) -> Facts:
    """Return the document, the place of its figures and its setup."""
    facts = (("document", published.document), ("figures", published.place), ("setup", published.setup))
    return Facts.of((label, text) for label, text in facts if text)


def faults(published: PublishedStudy) -> Iterator[str]:
    """Yield a sentence on each printed change that the table contradicts, and on each other fault."""
    for one in recomputed(published):
        if one.contradicted:
            said, change = one.printed, format_percent(one.change)
            yield (
                f"The text prints {said.printed} for {said.column} of {said.row!r} against {said.against!r}; "
                f"by its own table the change is {change}."
            )
    yield from published.wrong


def number(column: PublishedColumn, figure: float | None) -> str:
    """Format a published figure with the decimals of its column."""
    return UNKNOWN if figure is None else f"{figure:,.{column.digits}f}"


def _content(study: "StudyView") -> Iterator[Block]:
    published = study.comparison.record.published
    if published is None:
        return
    yield document_facts(published)
    found = study.of(beside)
    if found:
        columns = ("figure", "row of the document", "document", "change there", "change here", "agreement")
        ordered = (one for column in published.columns for one in found if one.column == column)
        yield Table.of(columns, map(_row, ordered), right=columns[2:5], spare=("document",))
        yield f"Changes count from {published.control!r} there, unless a row says otherwise, and from its row here."
    yield from (f"{one.name}: {one.note}" for one in published.columns if one.note)
    wrong = list(faults(published))
    if wrong:
        yield "What was wrong with it:"
        yield from (f"– {one}" for one in wrong)


def _values(study: "StudyView") -> dict[str, Any]:
    published = study.comparison.record.published
    if published is None:
        return {}
    return {"document": published.document, "rows": list(map(_plain, study.of(beside))), **printed(published)}


def printed(published: PublishedStudy) -> dict[str, Any]:
    """Return the printed changes with the recomputed ones, and the faults, as plain values."""
    changes = [
        {**one.printed.model_dump(), "by_the_table": one.change, "contradicted": one.contradicted}
        for one in recomputed(published)
    ]
    return {"printed": changes, "wrong": list(published.wrong)}


SECTION = Section(
    "published",
    "Published against ours",
    _content,
    _values,
    caption="Only changes are compared: machine, software and often the model are not those of the document.",
)


def _row(one: Beside) -> tuple[str, ...]:
    against = f" (against {one.row.against})" if one.row.against not in (None, one.row.name) else ""
    there = UNKNOWN if one.change is None else format_percent(one.change)
    return (
        *(one.column.name, one.row.name + against, number(one.column, one.figure)),
        *(there, _here(one.ours), one.agreement.value),
    )


def _here(effect: Effect | None) -> str:
    if effect is None:
        return UNKNOWN
    return " ".join(filter(None, (format_percent(effect.change), interval(effect.interval))))


def _plain(one: Beside) -> dict[str, Any]:
    return {
        "name": one.row.name,
        "row": one.row.row,
        "column": one.column.name,
        "metric": one.column.metric,
        "figure": one.figure,
        "change": one.change,
        "ours": None if one.ours is None else one.ours.model_dump(mode="json"),
        "agreement": one.agreement.value,
    }
