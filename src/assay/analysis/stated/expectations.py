"""Expectations, which are stated before a study runs, against the measured changes.

An interval decides, and those of all rows hold together. A change of at least a size is confirmed if the whole interval
lies beyond the size, and refuted if none of it does. That there is no change cannot be shown; that it is smaller than a
size can (equivalence): the whole interval lies within the size. A metric that repeats exactly has an interval of one
value. In all other cases the comparison cannot tell.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from assay.analysis.effects import Effect
from assay.analysis.metrics import metrics
from assay.analysis.row import Row
from assay.errors import UsageError, among, shown
from assay.records.study import Expectation


class Outcome(StrEnum):
    """Outcome of an expectation."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    NOT_DISTINGUISHABLE = "not distinguishable"
    NOT_MEASURED = "not measured"


class Judged(NamedTuple):
    """An expectation and its outcome."""

    expectation: Expectation
    outcome: Outcome
    effect: Effect | None
    """The measured change; None if there is none."""


def judged(expectations: Sequence[Expectation], rows: Sequence[Row]) -> tuple[Judged, ...]:
    """Return the outcome of each expectation."""
    known = {row.treatment: row for row in rows}
    found = []
    for one in expectations:
        effect = known[one.row].effects.get(one.metric) if one.row in known else None
        found.append(Judged(one, Outcome.NOT_MEASURED if effect is None else outcome(one, effect), effect))
    return tuple(found)


def outcome(expected: Expectation, effect: Effect) -> Outcome:
    """Return what a measured change says of an expectation."""
    ends = _ends(expected.metric, effect)
    if ends is None:
        return Outcome.NOT_DISTINGUISHABLE
    low, high = ends
    if expected.change == "higher":
        low, high = -high, -low
    size = expected.size
    if expected.change == "none":
        inside, outside = -size <= low and high <= size, low > size or high < -size
    else:
        inside, outside = (high < 0 and high <= -size), (low > -size or low >= 0)
    return Outcome.CONFIRMED if inside else Outcome.REFUTED if outside else Outcome.NOT_DISTINGUISHABLE


def check_expectations(expectations: Sequence[Expectation], rows: set[str]) -> None:
    """Raise `UsageError` for an expectation of a row or a metric that the study does not have."""
    known = metrics()
    for one in expectations:
        if one.row not in rows:
            hint = among(one.row, sorted(rows))
            raise UsageError(f"expects names the row {shown(one.row)}, which the study does not have{hint}")
        if one.metric not in known:
            hint = among(one.metric, known)
            raise UsageError(f"expects names the metric {shown(one.metric)}, which does not exist{hint}")


def _ends(metric: str, effect: Effect) -> tuple[float, float] | None:
    if effect.equal:
        return 0.0, 0.0
    if effect.interval is None and metrics()[metric].kind == "exact":
        return effect.change, effect.change
    return effect.interval
