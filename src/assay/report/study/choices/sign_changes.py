"""Effects that change sign between levels of another factor, as sentences."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.factors.additivity import SignChange, sign_changes
from assay.report.blocks import Block, Table
from assay.report.study.choices.wording import change, plain
from assay.report.study.section import Section

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


def _content(study: "StudyView") -> Iterator[Block]:
    if found := study.of(sign_changes):
        yield Table.of(("metric", "level", "lower at", "higher at"), map(_row, found))
        yield (
            "Each change is against the control's level of the same factor, with all other levels equal, and can be "
            "told from zero. A result at one level of the other factor does not carry over."
        )


def _row(one: SignChange) -> tuple[str, ...]:
    rest = "".join(f", {name}={level}" for name, level in one.rest)
    return (
        one.metric.title,
        f"{one.factor}={one.level}{rest}",
        f"{one.other}={one.lowers_at}: {change(one.lowered)}",
        f"{one.other}={one.raises_at}: {change(one.raised)}",
    )


def _values(study: "StudyView") -> list[dict[str, Any]]:
    return [
        {
            **one._asdict(),
            "metric": one.metric.name,
            "lowered": plain(one.lowered),
            "raised": plain(one.raised),
            "rest": dict(one.rest),
        }
        for one in study.of(sign_changes)
    ]


SECTION = Section("sign_changes", "Effects that change sign", _content, _values)
