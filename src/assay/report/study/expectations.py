"""Expectations of a study as sentences, with their outcomes."""

from typing import NamedTuple

from assay.analysis.comparison import Comparison
from assay.analysis.expectations import Judged, Outcome, judged
from assay.analysis.metrics import metrics
from assay.records.study import Expectation
from assay.report.wording import interval
from assay.units import format_percent


class Expected(NamedTuple):
    """Texts of one expectation."""

    expected: str
    outcome: Outcome
    found: str


def expected(comparison: Comparison) -> tuple[Expected, ...]:
    """Return the texts of every expectation of a study."""
    found = judged(comparison.record.expects, (comparison.again, *comparison.rows))
    return tuple(Expected(_sentence(one.expectation), one.outcome, _found(one)) for one in found)


def _sentence(one: Expectation) -> str:
    known = metrics().get(one.metric)
    title = one.metric if known is None else known.title
    if one.change == "none":
        return f"{one.row}: {title} within {_size(one)}"
    return f"{one.row}: {title} {one.change}" + (f" by {_size(one)} or more" if one.size else "")


def _size(one: Expectation) -> str:
    return f"{100 * one.size:g} %"


def _found(one: Judged) -> str:
    if one.effect is None:
        return "no figure"
    if one.effect.equal:
        return "exactly equal"
    return " ".join(filter(None, (format_percent(one.effect.change), interval(one.effect.interval))))
