"""Placebos of a study: what it says of rows that change nothing."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.claims import Placebo, placebos
from assay.report.blocks import Block, Table
from assay.report.formats import UNKNOWN
from assay.report.study.section import Section
from assay.units import format_percent

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


def _content(study: "StudyView") -> Iterator[Block]:
    found = study.of(placebos)
    if not found:
        return
    yield _sentence(found)
    yield Table.of(("placebo", "runs the row", "losses", "peak of tensors", "step time"), map(_row, found))


def _sentence(found: tuple[Placebo, ...]) -> str:
    one = len(found) == 1
    count = f"{len(found)} row{' runs' if one else 's run'} another row under a label of its own."
    same = all(each.losses_equal and each.peak_equal for each in found)
    what = (
        f"Losses are bit-equal and peaks of tensors are equal, so {'it changes' if one else 'they change'} nothing."
        if same
        else "Some losses or peaks are not those of the row repeated, so something other than the label differs."
    )
    changes = [each.step_change for each in found if each.step_change is not None]
    if not changes:
        return f"{count} {what}"
    low, high = map(format_percent, (min(changes), max(changes)))
    times = f"Its step time differs by {low}" if one else f"Their step times differ by {low} to {high}"
    return f"{count} {what} {times}: so far equal runs lie apart here by chance."


def _row(one: Placebo) -> tuple[str, ...]:
    return (
        one.row,
        one.repeats,
        "bit-equal" if one.losses_equal else "NOT EQUAL",
        "equal" if one.peak_equal else "NOT EQUAL",
        UNKNOWN if one.step_change is None else format_percent(one.step_change),
    )


def _values(study: "StudyView") -> list[dict[str, Any]]:
    return [one._asdict() for one in study.of(placebos)]


SECTION = Section("placebos", "Rows that change nothing", _content, _values)
