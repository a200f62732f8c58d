"""Expectations of a study as sentences, with their outcomes."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.claims import JudgedExpectation, Outcome, judged
from assay.analysis.comparison import Comparison
from assay.analysis.factors.changes import factor_effects
from assay.analysis.factors.layout import effect_name
from assay.analysis.metrics import metrics
from assay.records.study import Expectation
from assay.report.blocks import Block, Table
from assay.report.study.choices.wording import names
from assay.report.study.section import Section
from assay.report.wording import interval
from assay.units import format_percent

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


def _content(study: "StudyView") -> Iterator[Block]:
    if study.comparison.record.expects:
        rows = ((expected(one.expectation), one.outcome.value, _found(one)) for one in study.of(_judged))
        yield Table.of(("expected before the run", "outcome", "measured"), rows)


def _values(study: "StudyView") -> list[dict[str, Any]]:
    return [
        {
            **one.expectation.model_dump(mode="json"),
            "outcome": one.outcome.value,
            "measured": None if one.effect is None else one.effect.model_dump(mode="json"),
        }
        for one in study.of(_judged)
    ]


SECTION = Section("expectations", "What was expected", _content, _values, leads=True)


def counted(study: "StudyView") -> str:
    """Return how many expectations have which outcome, without a full stop; a study without any is not asked."""
    outcomes = [one.outcome for one in study.of(_judged)]
    if len(outcomes) == 1:
        return f"The expectation is {outcomes[0].value}"
    counts = Counter(outcomes)
    said = [f"{counts[one]} {'is' if counts[one] == 1 else 'are'} {one.value}" for one in Outcome if counts[one]]
    return f"Of {len(outcomes)} expectations, {names(said)}"


def refuted(comparison: Comparison) -> list[str]:
    """Return the expectations that the study refutes, in words."""
    return [expected(one.expectation) for one in _judged(comparison) if one.outcome is Outcome.REFUTED]


def _judged(comparison: Comparison) -> tuple[JudgedExpectation, ...]:
    expects = comparison.record.expects
    effects = factor_effects(comparison) if any(one.effect for one in expects) else ()
    return judged(expects, (comparison.again, *comparison.rows), effects)


def expected(one: Expectation) -> str:
    """Return an expectation in words."""
    known = metrics().get(one.metric)
    title = one.metric if known is None else known.title
    what = effect_name(one.effect.items()) if one.effect else one.row
    if one.change == "none":
        return f"{what}: {title} within {_size(one)}"
    return f"{what}: {title} {one.change}" + (f" by {_size(one)} or more" if one.size else "")


def _size(one: Expectation) -> str:
    return f"{100 * one.size:g} %"


def _found(one: JudgedExpectation) -> str:
    if one.effect is None:
        return "no figure"
    if one.effect.equal:
        return "exactly equal"
    return " ".join(filter(None, (format_percent(one.effect.change), interval(one.effect.interval))))
