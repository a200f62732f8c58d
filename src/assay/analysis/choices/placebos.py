"""Placebos: rows that run another row under a label of their own, held against the row that they repeat.

Whatever a study says of a placebo, it would say of an optimization that does nothing. Its losses and its peak of
tensors must be those of the row that it repeats. Its time shows how far equal runs lie apart by chance.
"""

from typing import NamedTuple

from assay.analysis.choices.log_change import log_change
from assay.analysis.comparison import Comparison
from assay.analysis.metrics.memory import TENSORS_PEAK_BYTES
from assay.analysis.metrics.time import STEP_SECONDS
from assay.analysis.row import usable
from assay.config.run import ResolvedRun
from assay.records.study import BASELINE, Curve
from assay.studies.factors import is_placebo


class Placebo(NamedTuple):
    """One placebo and the row that it repeats."""

    row: str
    repeats: str
    losses_equal: bool
    """True if every training loss and every evaluation is equal to the last bit, at each seed that both have."""
    peak_equal: bool
    step_change: float | None
    """Change of the step time against the row that it repeats, as a fraction; None if one was not timed."""


def placebos(comparison: Comparison) -> tuple[Placebo, ...]:
    """Return each placebo of a study that finished, with the row that it repeats."""
    record = comparison.record
    found = []
    known: list[tuple[ResolvedRun, str]] = []
    for row in (BASELINE, *record.treatments):
        cells = record.of(row)
        if not cells:
            continue
        run = cells[0].cell.run.model_copy(update={"seed": 0})
        placebo = any(map(is_placebo, cells[0].cell.levels.values()))
        repeated = next((label for other, label in known if other == run), None)
        if placebo and repeated is not None and usable(cells):
            found.append(_held(comparison, row, repeated))
        elif not placebo:
            known.append((run, row))
    return tuple(found)


def _held(comparison: Comparison, row: str, repeated: str) -> Placebo:
    ours, theirs = _losses(comparison, row), _losses(comparison, repeated)
    common = ours.keys() & theirs.keys()
    by_name = {one.treatment: one for one in (comparison.baseline, *comparison.rows)}
    rows = by_name[row], by_name[repeated]
    peaks = [one.metrics.get(TENSORS_PEAK_BYTES.name) for one in rows]
    here, there = (log_change(one, STEP_SECONDS) for one in rows)
    return Placebo(
        row=row,
        repeats=repeated,
        losses_equal=bool(common) and all(ours[seed] == theirs[seed] for seed in common),
        peak_equal=peaks[0] == peaks[1],
        step_change=None if here is None or there is None else here.since(there).fraction,
    )


def _losses(comparison: Comparison, row: str) -> dict[int, tuple[Curve, float | None, float | None]]:
    """Return the losses of a row's first finished process at each seed: all steps, and the last ones on record."""
    found: dict[int, tuple[Curve, float | None, float | None]] = {}
    for one in usable(comparison.record.of(row)):
        found.setdefault(one.cell.seed, (one.curve, one.result.train_loss, one.result.val_loss))
    return found
