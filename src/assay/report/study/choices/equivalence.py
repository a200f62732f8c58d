"""Losses within the margin, beside the speed of each row, so that a fast but worse row cannot win silently."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.choose.criteria import LogChange, LossDifference, LossVerdict, loss_differences, time_change
from assay.analysis.metrics.loss import TRAIN_LOSS, VAL_LOSS, loss_of
from assay.report.blocks import Block, Table
from assay.report.study.choices.wording import change, in_nats, nats, plain, time_title
from assay.report.study.section import Section

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


_BASES = {VAL_LOSS.name: "validation loss after the last step", TRAIN_LOSS.name: "training loss of the last step"}


def _content(study: "StudyView") -> Iterator[Block]:
    comparison, found = study.comparison, study.of(loss_differences)
    margin = comparison.record.loss_margin
    if not found:
        return
    unit = in_nats(comparison)
    columns = ("row", time_title(comparison), f"loss{unit and ',' + unit}", "as good as the control?")
    rows = []
    for row in study.comparison.rows:
        if one := found.get(row.treatment):
            time = time_change(study.comparison, row)
            rows.append((row.treatment, change(time), nats(one), _verdict(one, time, margin)))
    yield Table.of(columns, rows, right=columns[1:3], spare=columns[1:2])
    yield (
        f"The loss is the {_BASES[loss_of(comparison.run).name]}. Losses within {margin:g}{unit} count as the same. "
        "That is shown if the whole interval of the difference lies within them; the intervals of all rows hold "
        "together."
    )


def _verdict(one: LossDifference, time: LogChange | None, margin: float) -> str:
    """Return the verdict in words; a row that is faster and not shown to be as good is called so."""
    but = "faster, but " if time is not None and time.sign < 0 and not one.verdict.as_good else ""
    return (
        but
        + {
            LossVerdict.EQUAL: "the same to the last bit",
            LossVerdict.BETTER: f"better by more than {margin:g}",
            LossVerdict.SAME: f"the same within {margin:g}",
            LossVerdict.NO_WORSE: "no worse",
            LossVerdict.WORSE: f"worse by more than {margin:g}",
            LossVerdict.UNKNOWN: "not shown to be as good" + (" (too few seeds)" if one.half is None else ""),
        }[one.verdict]
    )


def _values(study: "StudyView") -> list[dict[str, Any]]:
    rows = {row.treatment: row for row in study.comparison.rows}
    return [
        {
            "row": name,
            "nats": one.nats,
            "interval": one.interval and list(one.interval),
            "margin": study.comparison.record.loss_margin,
            "verdict": one.verdict.value,
            "time": plain(time_change(study.comparison, rows[name])),
        }
        for name, one in study.of(loss_differences).items()
    ]


SECTION = Section("equivalence", "Losses: which are as good", _content, _values, printed=False)
