"""Losses that are the same within a margin: the difference from the control in nats, and what its interval shows.

That two losses are equal cannot be shown. That they differ by less than a margin can: the whole interval lies within
it. This is the idea of two one-sided tests (Schuirmann 1987). They need an interval of 90 %; the one here is wider, as
it holds in 95 % of comparisons for all rows together.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import hypot
from statistics import fmean
from typing import NamedTuple

from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric
from assay.analysis.metrics.loss import loss_of
from assay.analysis.row import Row, usable
from assay.records.study import BASELINE, CellResult


class LossVerdict(StrEnum):
    """Verdict of an interval on a loss, relative to a margin."""

    EQUAL = "bit-equal"
    BETTER = "better"
    """The whole interval lies below the margin's lower end."""
    SAME = "same"
    """The whole interval lies within the margin."""
    NO_WORSE = "no worse"
    """The upper end lies within the margin, the lower end below it."""
    WORSE = "worse"
    UNKNOWN = "not shown"

    @property
    def as_good(self) -> bool:
        """True if the loss is shown to be no worse by more than the margin."""
        return self not in (LossVerdict.WORSE, LossVerdict.UNKNOWN)


class LossDifference(NamedTuple):
    """Difference of a loss from the control's, in nats per token; of a user's own loss, in its unit."""

    nats: float
    half: float | None
    """Half width of its interval; None below three seeds."""
    verdict: LossVerdict

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of the difference; None if there is none."""
        return None if self.half is None else (self.nats - self.half, self.nats + self.half)


def loss_verdict(nats: float, half: float | None, margin: float) -> LossVerdict:
    """Return what an interval of a difference shows."""
    if half is None:
        return LossVerdict.UNKNOWN
    low, high = nats - half, nats + half
    if high < -margin:
        return LossVerdict.BETTER
    if high <= margin:
        return LossVerdict.SAME if low >= -margin else LossVerdict.NO_WORSE
    return LossVerdict.WORSE if low > margin else LossVerdict.UNKNOWN


def loss_difference(comparison: Comparison, row: Row) -> LossDifference | None:
    """Return the difference of a row's loss from the control's; None if either is missing."""
    if row.treatment == BASELINE:
        measured = row.metrics.get(loss_of(comparison.run).name)
        return LossDifference(0.0, 0.0, LossVerdict.EQUAL) if measured else None
    effect = row.effects.get(loss_of(comparison.run).name)
    scale = _scale(comparison, row)
    if effect is None or scale is None:
        return None
    if effect.equal:
        return LossDifference(0.0, 0.0, LossVerdict.EQUAL)
    nats = effect.change * scale
    half = None if effect.interval is None else (effect.interval[1] - effect.interval[0]) / 2 * scale
    return LossDifference(nats, half, loss_verdict(nats, half, comparison.record.loss_margin))


def loss_between(one: LossDifference, other: LossDifference, margin: float) -> LossDifference:
    """Return the difference of one row's loss from another's, as `log_change` does for other metrics."""
    nats = one.nats - other.nats
    half = None if one.half is None or other.half is None else hypot(one.half, other.half)
    return LossDifference(nats, half, loss_verdict(nats, half, margin))


def loss_differences(comparison: Comparison) -> dict[str, LossDifference]:
    """Return the difference of every row that has one, by its name."""
    found = {row.treatment: loss_difference(comparison, row) for row in comparison.rows}
    return {name: one for name, one in found.items() if one is not None}


def _scale(comparison: Comparison, row: Row) -> float | None:
    """Mean loss of the control over the seeds of a row, of which its effect is a fraction."""
    loss = loss_of(comparison.run)
    own = _by_seed(usable(comparison.record.of(row.treatment)), loss)
    control = _by_seed(usable(comparison.record.references), loss)
    means = [fmean(control[seed]) for seed in own if seed in control]
    return fmean(means) if means else None


def _by_seed(cells: Sequence[CellResult], metric: Metric) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for one in cells:
        if (loss := metric.of_run(one.result)) is not None:
            found.setdefault(one.cell.seed, []).append(loss)
    return found
