"""The sections of a study's answer, in the order of the page."""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from assay.report.study.view import StudyView

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


def filled(study: "StudyView") -> tuple[Filled, ...]:
    """Return the sections that apply to a study, with their content."""
    found = (Filled(section, tuple(section.content(study))) for section in SECTIONS)
    return tuple(one for one in found if one.blocks)
