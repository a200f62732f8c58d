"""Changes on the log scale, so that two rows can be compared with each other and not only with the control.

The change from one row to another is the difference of their changes against the control. Its half width is the root of
the sum of both squared half widths. That is wide enough, because it counts the chance effects of the control, which
both changes share, twice instead of not at all.
"""

from math import expm1, hypot, inf, log1p
from typing import NamedTuple

from assay.analysis.effects import Effect
from assay.analysis.metrics import Metric
from assay.analysis.row import Row
from assay.records.study import BASELINE


class LogChange(NamedTuple):
    """Change of a metric on the log scale, with the half width of its interval."""

    log: float
    half: float | None
    """None if there is no interval; 0 if the metric repeats exactly."""

    @property
    def sign(self) -> int:
        """Sign of the change: −1 or 1 if it can be told from zero, else 0."""
        if self.half is None or abs(self.log) <= self.half:
            return 0
        return 1 if self.log > 0 else -1

    @property
    def fraction(self) -> float:
        """The change as a fraction: −0.1 is ten percent less."""
        return expm1(self.log)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of the fraction; None if there is none, or if the metric repeats exactly."""
        if not self.half:
            return None
        return expm1(self.log - self.half), expm1(self.log + self.half)

    def since(self, other: "LogChange") -> "LogChange":
        """Return the change from another row to this one."""
        half = None if self.half is None or other.half is None else hypot(self.half, other.half)
        return LogChange(self.log - other.log, half)


def log_change(row: Row, metric: Metric) -> LogChange | None:
    """Return a row's change against the control, which itself has changed by exactly nothing; None without one."""
    if row.treatment == BASELINE:
        return None if row.metrics.get(metric.name) is None else LogChange(0.0, 0.0)
    effect = row.effects.get(metric.name)
    return None if effect is None or effect.change <= -1 else _logarithmic(effect, exact=metric.kind == "exact")


def _logarithmic(effect: Effect, *, exact: bool) -> LogChange:
    """Return an effect on the log scale, as wide as the farther end of its interval."""
    middle = log1p(effect.change)
    if effect.equal:
        return LogChange(middle, 0.0)
    if effect.interval is None:
        return LogChange(middle, 0.0 if exact else None)
    ends = [log1p(end) if end > -1 else -inf for end in effect.interval]
    return LogChange(middle, max(abs(end - middle) for end in ends))
