"""The limit that binds each row: memory, data, communication or compute, as far as its record tells.

Shares are compared with fixed bounds, in this order. Memory: a run that went out of memory, or a process's peak near
the memory that was free before the study. Data: the share of a step in which the host waited for its batch.
Communication: the share of a step with a collective running. Compute: the time of the step's work over the measured
step time. The former divides the work by the rates that were measured on the machine. So a share near 1 means that no
other cost is large. If no share reaches its bound, the limit is not known.
"""

from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from assay.analysis.comparison import Comparison
from assay.analysis.metrics.memory import PROCESS_PEAK_BYTES
from assay.analysis.metrics.time import STEP_SECONDS
from assay.analysis.row import Row, usable
from assay.records.run import RunResult
from assay.records.status import Status

NEAR_MEMORY = 0.9
"""Share of the free memory from which memory binds."""
WAITING = 0.1
"""Share of a step's time from which waiting for data binds."""
COMMUNICATING = 0.4
"""Share of a step's time from which communication binds."""
NEAR_RATES = 0.7
"""Time of the work over measured step time from which compute binds."""


class Limit(StrEnum):
    """Resource that keeps a row from being faster or larger."""

    MEMORY = "memory"
    DATA = "data"
    COMMUNICATION = "communication"
    COMPUTE = "compute"
    UNKNOWN = "not known"


class RowLimit(NamedTuple):
    """The limit of one row, and the shares it is decided by; each is None if it was not measured."""

    row: Row
    limit: Limit
    memory: float | None
    data: float | None
    communication: float | None
    compute: float | None


def limits(comparison: Comparison) -> tuple[RowLimit, ...]:
    """Return the limit of the control and of each row."""
    return tuple(_limit(comparison, row) for row in (comparison.baseline, *comparison.rows))


def _limit(comparison: Comparison, row: Row) -> RowLimit:
    results = [one.result for one in usable(comparison.record.of(row.treatment))]
    memory, data = _memory(comparison, row, results), _mean([one.data_wait_share for one in results])
    shares = [rank.communication_share for one in results for rank in one.ranks]
    communication = _mean(shares)
    compute = _compute(row)
    bounds = (
        (Limit.MEMORY, memory, NEAR_MEMORY),
        (Limit.DATA, data, WAITING),
        (Limit.COMMUNICATION, communication, COMMUNICATING),
        (Limit.COMPUTE, compute, NEAR_RATES),
    )
    found = next((limit for limit, share, bound in bounds if share is not None and share >= bound), Limit.UNKNOWN)
    if row.status is Status.OUT_OF_MEMORY:
        found = Limit.MEMORY
    return RowLimit(row, found, memory, data, communication, compute)


def _memory(comparison: Comparison, row: Row, results: Sequence[RunResult]) -> float | None:
    """Share of the free host memory that a process's peak takes; None on an accelerator, whose memory is another."""
    peak, free = row.metrics.get(PROCESS_PEAK_BYTES.name), comparison.record.protocol.available_bytes
    devices = {one.environment.device for one in results if one.environment}
    if devices != {"cpu"} or not isinstance(peak, int | float) or not free:
        return None
    return peak / free


def _compute(row: Row) -> float | None:
    """Seconds of the work at the machine's rates, over the measured step time."""
    measured = row.metrics.get(STEP_SECONDS.name)
    predicted = row.predicted.work_seconds if row.predicted else None
    return predicted / measured if predicted and isinstance(measured, int | float) and measured else None


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return fmean(known) if known else None
