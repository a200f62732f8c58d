"""Time of each row to the target loss."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.choose.target import LEAST_EVALUATIONS, RowTarget, Targets, targets
from assay.analysis.comparison import Comparison
from assay.report.blocks import Block, Table
from assay.report.formats import UNKNOWN
from assay.report.study.choices.wording import in_nats, target_ratio
from assay.report.study.section import Section
from assay.units import format_seconds, format_steps

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


def _content(study: "StudyView") -> Iterator[Block]:
    found = study.of(targets)
    if found is None or len(found.rows) < 2:
        return
    columns = ("row", "steps", "seconds of steps", "against the control")
    yield Table.of(columns, map(_row, found.rows), right=columns[1:3])
    yield f"The target is {_aim(study.comparison, found)}. {_basis(study.comparison, found)}"
    yield (
        "A run has reached the target at the first step from which its loss stays at or below it. Seconds are those "
        "of the optimizer steps until then, the first one included; start, evaluation and checkpoints are not. "
        "Intervals are over seeds."
    )


def _aim(comparison: Comparison, found: Targets) -> str:
    if found.target is not None:
        return f"a {found.basis} of {found.target:g}, as the study states"
    margin = f"{comparison.record.loss_margin:g}{in_nats(comparison)}"
    return f"the control's last {found.basis} at the same seed, plus {margin}: being as good as the control"


def _basis(comparison: Comparison, found: Targets) -> str:
    own = comparison.run.own_rows
    if own is not None and not own.validation:
        return (
            "There are no validation batches, so the training loss counts, averaged over the last "
            f"{format_steps(found.resolution)}. It lags behind by half of them."
        )
    if found.basis == "validation loss":
        return f"Runs were evaluated every {format_steps(found.resolution)}, so steps are known to within as many."
    return (
        f"Some run was evaluated fewer than {LEAST_EVALUATIONS} times, so the training loss counts, averaged over the "
        f"last {format_steps(found.resolution)}. It lags behind by half of them, and is no loss on held-out text; "
        "a smaller training.eval_interval gives one."
    )


def _row(one: RowTarget) -> tuple[str, ...]:
    seconds, steps = one.seconds, one.steps
    if one.censored:
        within = max(run.within for run in one.runs)
        missed = "not" if one.censored == len(one.runs) else f"{one.censored} of {len(one.runs)} runs not"
        return one.row.treatment, f"{missed} within {within}", UNKNOWN, "unknown: a run did not reach it"
    said = UNKNOWN if one.ratio is None else target_ratio(one.ratio)
    return one.row.treatment, f"{steps:.0f}", UNKNOWN if seconds is None else format_seconds(seconds), said


def _values(study: "StudyView") -> dict[str, Any]:
    found = study.of(targets)
    if found is None:
        return {}
    return {
        "basis": found.basis,
        "resolution_steps": found.resolution,
        "target": found.target,
        "rows": [
            {
                "row": one.row.treatment,
                "runs": [run._asdict() for run in one.runs],
                "not_reached": one.censored,
                "steps": one.steps,
                "seconds": one.seconds,
                "ratio": None if one.ratio is None else one.ratio.model_dump(mode="json"),
            }
            for one in found.rows
        ],
    }


SECTION = Section("target_loss", "Time to the target loss", _content, _values, printed=False)
