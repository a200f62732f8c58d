"""The outcome of a search by successive halving: how many rows went on to each rung, and the best one at the end."""

from typing import NamedTuple

from assay.records.study import BASELINE, ComparisonRecord
from assay.studies.execution.rungs import mean_loss


class FoundTarget(NamedTuple):
    """The outcome of a search."""

    counts: tuple[int, ...]
    """Number of rows that ran in each rung."""
    best: str | None
    """Row of the last rung that ran with the lowest validation loss; None if none of its rows has one."""
    loss: float | None
    """Its validation loss, as the mean over its processes."""
    control: float | None
    """The control's."""


def found(record: ComparisonRecord) -> FoundTarget | None:
    """Return the outcome of a search; None for a study that is none."""
    if record.halving is None:
        return None
    rungs = [[row for row in rung if record.of(row)] for rung in record.halving.rungs]
    last = next((rung for rung in reversed(rungs) if rung), [])
    losses = {row: loss for row in last if (loss := mean_loss(record.of(row))) is not None}
    best = min(losses, key=lambda row: losses[row], default=None)
    loss = None if best is None else losses[best]
    return FoundTarget(tuple(map(len, rungs)), best, loss, mean_loss(record.of(BASELINE)))
