"""Stable range of learning rates: the best rate for each batch size, and the rates that are as good or at least finite.

Rows that differ in nothing but the learning rate make one series. A study that also varies the batch size has a series
for each, and one for each combination of its other levels. The loss of a rate is the mean validation loss over the
seeds that its series shares. A rate at which a run diverged has none. The range around the best rate ends at the first
tested rate on either side whose loss is worse by more than the margin. Rates between two tested ones are not known.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from assay.analysis.comparison import Comparison
from assay.analysis.row import Row, usable
from assay.records.status import Status
from assay.records.study import BASELINE, CellResult

LEARNING_RATE, BATCH_SIZE = "training.learning_rate", "training.batch_size"


class Rate(NamedTuple):
    """One tested learning rate."""

    rate: float
    row: Row
    loss: float | None
    """Mean validation loss over the seeds that all rates with a loss share; None if a run diverged or failed."""
    seeds: int
    """Number of seeds of that mean."""
    diverged: bool


class RateSeries(NamedTuple):
    """Learning rates in ascending order, with all else equal."""

    batch_size: int
    levels: tuple[tuple[str, str], ...]
    """All other factors with their levels."""
    rates: tuple[Rate, ...]
    margin: float

    @property
    def others(self) -> str:
        """Levels of all other factors as text, such as ``"optimizations=lion"``; empty if there are none."""
        return ", ".join(f"{key}={level}" for key, level in self.levels)

    @property
    def best(self) -> Rate | None:
        """The rate with the lowest loss; the lower one of two equal losses. None if no rate has a loss."""
        known = [(one.loss, one.rate, one) for one in self.rates if one.loss is not None]
        return min(known, key=lambda one: one[:2])[2] if known else None

    @property
    def good(self) -> tuple[Rate, ...]:
        """Neighbours of the best rate, and itself, whose loss is within the margin of the best."""
        best = self.best
        if best is None or best.loss is None:
            return ()
        bound, at = best.loss + self.margin, self.rates.index(best)
        within = [one.loss is not None and one.loss <= bound for one in self.rates]
        low = next((place + 1 for place in range(at, -1, -1) if not within[place]), 0)
        high = next((place for place in range(at, len(within)) if not within[place]), len(within))
        return self.rates[low:high]

    @property
    def open_ended(self) -> str:
        """Side on which better rates may lie beyond the tested ones: ``lower``, ``higher``, or empty."""
        if self.best is None:
            return ""
        return "lower" if self.best is self.rates[0] else "higher" if self.best is self.rates[-1] else ""


def learning_rates(comparison: Comparison) -> tuple[RateSeries, ...]:
    """Return each series of at least two learning rates, by batch size and then by the other levels."""
    record = comparison.record
    found: dict[tuple[int, tuple[tuple[str, str], ...]], dict[float, _Tested]] = {}
    for row in (comparison.baseline, *comparison.rows):
        cells = record.of(row.treatment)
        if cells and LEARNING_RATE in cells[0].cell.levels:
            training = cells[0].cell.run.training
            rates = found.setdefault((training.batch_size, _others(cells[0])), {})
            rates.setdefault(training.learning_rate, _Tested(training.learning_rate, row, cells))
    series = (
        RateSeries(batch_size, others, _rates([rates[one] for one in sorted(rates)]), record.loss_margin)
        for (batch_size, others), rates in found.items()
        if len(rates) > 1
    )
    return tuple(sorted(series, key=lambda one: (one.batch_size, one.others)))


def rate_sweep(comparison: Comparison) -> tuple[RateSeries, ...]:
    """Return the series of a study that asks for the best rate: it has no other factor, or as few series as rates."""
    found = tuple(one for one in learning_rates(comparison) if one.best is not None)
    if not any(one.others for one in found):
        return found
    fewest = min(len(one.rates) for one in found)
    return found if len({one.batch_size for one in found}) == 1 and len(found) <= fewest else ()


def _others(one: CellResult) -> tuple[tuple[str, str], ...]:
    return tuple(level for level in one.cell.levels.items() if level[0] not in (LEARNING_RATE, BATCH_SIZE))


class _Tested(NamedTuple):
    """One tested learning rate with its cells."""

    rate: float
    row: Row
    cells: Sequence[CellResult]

    @property
    def diverged(self) -> bool:
        return any(one.result.status is Status.DIVERGED for one in self.cells)

    def losses(self) -> dict[int, float]:
        """Return the validation loss of each seed, as a mean over processes; none if a run diverged or failed."""
        if self.diverged or not (self.row.treatment == BASELINE or self.row.status.finished):
            return {}
        seeds: dict[int, list[float]] = {}
        for one in usable(self.cells):
            if one.result.val_loss is not None:
                seeds.setdefault(one.cell.seed, []).append(one.result.val_loss)
        return {seed: fmean(values) for seed, values in seeds.items()}


def _rates(tested: Sequence[_Tested]) -> tuple[Rate, ...]:
    """Return the rates of a series, with their losses at the seeds that all rates with a loss share."""
    losses = [one.losses() for one in tested]
    known = [set(one) for one in losses if one]
    shared = sorted(set.intersection(*known)) if known else []
    means = [fmean(one[seed] for seed in shared) if one and shared else None for one in losses]
    return tuple(
        Rate(one.rate, one.row, mean, 0 if mean is None else len(shared), one.diverged)
        for one, mean in zip(tested, means, strict=True)
    )
