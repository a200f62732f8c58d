"""Expectations, which are stated before a study runs, against the measured changes.

An interval decides, and those of all rows hold together. A change of at least a size is confirmed if the whole interval
lies beyond the size, and refuted if none of it does. That there is no change cannot be shown; that it is smaller than a
size can (equivalence): the whole interval lies within the size. A metric that repeats exactly has an interval of one
value. In all other cases the comparison cannot tell.

An effect of factors is judged in the same way, on the scale of ratios, by its interval in the table of effects. If the
design cannot tell it from another effect, the comparison cannot tell either.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from assay.analysis.effects import Effect
from assay.analysis.metrics import metrics
from assay.analysis.row import Row
from assay.errors import UsageError, among, short_text
from assay.records.study import Expectation

if TYPE_CHECKING:
    from assay.analysis.factors.interactions import MetricEffects

_ZERO = 1e-9
"""Largest error of a sum of exact changes."""


class Outcome(StrEnum):
    """Outcome of an expectation."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    NOT_DISTINGUISHABLE = "not distinguishable"
    NOT_MEASURED = "not measured"


class JudgedExpectation(NamedTuple):
    """An expectation and its outcome."""

    expectation: Expectation
    outcome: Outcome
    effect: Effect | None
    """The measured change; None if there is none."""


def judged(
    expectations: Sequence[Expectation], rows: Sequence[Row], effects: "Sequence[MetricEffects]" = ()
) -> tuple[JudgedExpectation, ...]:
    """Return the outcome of each expectation; `effects` are those of the factors by metric."""
    known = {row.treatment: row for row in rows}
    found = []
    for one in expectations:
        if one.effect:
            found.append(_of_factors(one, effects))
            continue
        effect = known[one.row].effects.get(one.metric) if one.row in known else None
        found.append(JudgedExpectation(one, Outcome.NOT_MEASURED if effect is None else outcome(one, effect), effect))
    return tuple(found)


def _of_factors(expected: Expectation, effects: "Sequence[MetricEffects]") -> JudgedExpectation:
    """Return the outcome for a main effect or an interaction."""
    wanted = frozenset(expected.effect.items())
    terms = [term for metric in effects if metric.metric == expected.metric for term in metric.effects]
    for term in terms:
        names = [frozenset(one) for one in (term.changes, *term.aliases)]
        if wanted in names:
            value, ends = term.ratio.value, term.ratio.interval
            equal = ends is None and abs(value) < _ZERO and metrics()[expected.metric].kind == "exact"
            effect = Effect(change=value, interval=ends, pairs=0, equal=equal)
            alone = outcome(expected, effect)
            return JudgedExpectation(expected, alone if len(names) == 1 else Outcome.NOT_DISTINGUISHABLE, effect)
    return JudgedExpectation(expected, Outcome.NOT_MEASURED, None)


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


def check_expectations(
    expectations: Sequence[Expectation], rows: set[str], factors: Mapping[str, Sequence[str]]
) -> None:
    """Raise `UsageError` for an expectation of a row, an effect or a metric that the study does not have.

    `factors` has the levels of each factor, the control's first.
    """
    known = metrics()
    for one in expectations:
        if one.effect:
            _check_effect(one, factors)
        elif one.row not in rows:
            hint = among(one.row, sorted(rows))
            raise UsageError(f"expects names the row {short_text(one.row)}, which the study does not have{hint}")
        if one.metric not in known:
            hint = among(one.metric, known)
            raise UsageError(f"expects names the metric {short_text(one.metric)}, which does not exist{hint}")
        if one.effect and (known[one.metric].per_step is not None or not known[one.metric].shown):
            raise UsageError(f"expects names an effect on {one.metric}, which has none; name another, as step_seconds")


def _check_effect(expected: Expectation, factors: Mapping[str, Sequence[str]]) -> None:
    for key, level in expected.effect.items():
        if key not in factors:
            raise UsageError(
                f"expects names the factor {short_text(key)}, which the study does not have{among(key, factors)}"
            )
        if level not in factors[key]:
            hint = among(level, factors[key])
            raise UsageError(f"expects names {key}={level}, which is no level of the study{hint}")
        if level == factors[key][0]:
            raise UsageError(f"expects names {key}={level}, which is the control's level; effects are of the others")


def _ends(metric: str, effect: Effect) -> tuple[float, float] | None:
    if effect.equal:
        return 0.0, 0.0
    if effect.interval is None and metrics()[metric].kind == "exact":
        return effect.change, effect.change
    return effect.interval
