"""Marks rows whose losses break the promises of their optimizations as `wrong_values`.

`losses` has the bounds. Such a row keeps its figures, and its reason names the seed and the first step.
"""

from collections.abc import Sequence

from assay.analysis.losses.bounds import Yardstick
from assay.analysis.losses.pairs import seeds_text
from assay.analysis.row import Row
from assay.optimizations import Numerics
from assay.records.status import Status
from assay.records.study import CellResult, ComparisonRecord
from assay.studies.drift import FIRST_STEPS


def held(row: Row, cells: Sequence[CellResult], yardstick: Yardstick) -> Row:
    """Return the row, as `wrong_values` if losses of its cells break its promise. A failed row keeps its own reason."""
    found = wrong_values(cells, yardstick)
    if found is None:
        return row
    if row.status.failure:
        return row.model_copy(update={"flags": (*row.flags, f"wrong values: {found}")})
    return row.model_copy(update={"status": Status.WRONG_VALUES, "reason": found})


def wrong_values(cells: Sequence[CellResult], yardstick: Yardstick) -> str | None:
    """Return a sentence on losses that break the promise of their row; None if all keep it."""
    partings = yardstick.partings(cells)
    if partings:
        others = sorted({one.seed for one in partings} - {partings[0].seed})
        return str(partings[0]) + (f" (also at {seeds_text(others)})" if others else "")
    lossy = [one for one in cells if yardstick.promise(one) is Numerics.LOSSY]
    if equal := yardstick.equal_seeds(lossy):
        return f"the losses equal the baseline's to the last bit at {seeds_text(equal)}, but rounding must change them"
    return None


def unheld(record: ComparisonRecord, yardstick: Yardstick) -> list[str]:
    """Return sentences on losses that could not be compared with the baseline's, or only within rounding."""
    found = []
    if yardstick.repeats is False:
        found.append(
            "Two equal baselines had different losses, so no row must have equal losses; a bound is used instead."
        )
    ran = {one.cell.seed for one in record.cells}
    missing = [seed for seed in record.seeds if seed in ran and seed not in yardstick.baselines]
    if missing:
        found.append(f"Losses at {seeds_text(missing)} are not compared, because there is no baseline.")
    promises = {yardstick.promise(one) for one in record.cells}
    within_rounding = Numerics.REASSOCIATED in promises or not yardstick.repeats
    if within_rounding and record.base.training.steps > FIRST_STEPS and yardstick.baselines.keys() - yardstick.drifts:
        found.append(
            f"Losses are compared with the baseline's in the first {FIRST_STEPS} steps only, because the later drift "
            "was not measured."
        )
    return found
