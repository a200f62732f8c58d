"""The sections of a study's answer, in the order of the page."""

from typing import Any

from assay.analysis.comparison import Comparison
from assay.report.study import expectations, ladder, published
from assay.report.study.choices import (
    answer,
    equivalence,
    exchange,
    frontier,
    learning_rates,
    limits,
    placebos,
    ranking,
    sign_changes,
    target,
)
from assay.report.study.factors import additivity, effects, percent
from assay.report.study.section import Filled, Section

SECTIONS: tuple[Section, ...] = (
    answer.SECTION,
    placebos.SECTION,
    expectations.SECTION,
    published.SECTION,
    ladder.SECTION,
    effects.SECTION,
    additivity.SECTION,
    percent.SECTION,
    ranking.SECTION,
    frontier.SECTION,
    equivalence.SECTION,
    target.SECTION,
    exchange.SECTION,
    learning_rates.SECTION,
    sign_changes.SECTION,
    limits.SECTION,
)


def filled(comparison: Comparison) -> tuple[Filled, ...]:
    """Return the sections that apply to a study, with their content."""
    found = (Filled(section, tuple(section.content(comparison))) for section in SECTIONS)
    return tuple(one for one in found if one.blocks)


def values(comparison: Comparison) -> dict[str, Any]:
    """Return the values of the sections that apply, by name, for JSON."""
    return {one.section.name: one.section.values(comparison) for one in filled(comparison)}


def answer_values(comparison: Comparison) -> dict[str, Any]:
    """Return the whole answer as plain values for JSON: rows, sections and environment, or that of a scaling study."""
    from assay.report.scaled.answer import answer_values as scaled_values
    from assay.scaling.studied.answer import answer_of

    scaled = answer_of(comparison.record)
    return {**comparison.to_json(), "sections": values(comparison)} if scaled is None else scaled_values(scaled)
