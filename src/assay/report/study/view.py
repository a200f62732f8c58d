"""The view of a comparison: its table, its sections and its last lines. A kind of study may have an answer of its own.

Each analysis that a section shows is computed once, whoever asks for it. A heading is a finding: what a part shows in
this study, instead of what it is about.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from assay.analysis.choose.criteria import loss_differences
from assay.analysis.choose.ranking import frontier, ranking
from assay.analysis.choose.series import learning_rates
from assay.analysis.claims import Agreement, beside
from assay.analysis.comparison import Comparison
from assay.analysis.factors.additivity import sign_changes
from assay.analysis.factors.changes import factor_effects
from assay.analysis.factors.layout import effect_name
from assay.analysis.metrics.standard import TENSORS_PEAK_BYTES
from assay.analysis.row import limits
from assay.report.comparison.wording import names, prediction_error, two_digits
from assay.report.kit.blocks import Block
from assay.report.kit.drawing import row_numbers
from assay.report.kit.view import View
from assay.report.study.headline import capital
from assay.report.study.sections import Filled, Section
from assay.report.study.sections.answer import additivity_finding, climb_finding, expectations_finding
from assay.units import format_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.report.study.summary import Summary


_Found = TypeVar("_Found")
_BY_KIND = {"isoflop": "assay.report.scaling_study_view"}
"""Module with the answer of a kind of study, which is its function `answer_view`."""


class StudyView(View):
    """Rows and sections of a comparison, as a reader is shown them."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = self.table = comparison
        self._found: dict[Callable[[Comparison], Any], Any] = {}

    def of(self, analysis: Callable[[Comparison], _Found]) -> _Found:
        """Return what an analysis finds in the comparison; it is computed once."""
        if analysis not in self._found:
            self._found[analysis] = analysis(self.comparison)
        return cast(_Found, self._found[analysis])

    def number(self, treatment: str) -> int:
        """Return the number of a row, by which it has its colour in every figure; the baseline's is 0."""
        return self._numbers.get(treatment, 0)

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return row_numbers(self.comparison.record)

    @cached_property
    def sections(self) -> tuple[Filled, ...]:
        """The sections that apply to the study, with their content."""
        found = (Filled(section, tuple(section.content(self))) for section in all_sections())
        return tuple(one for one in found if one.blocks)

    @cached_property
    def headline(self) -> str:
        """The first sentence of the answer; empty if there is none."""
        from assay.report.study.headline import headline

        return headline(self)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of the answer, the headline first; none if no row has ended."""
        return tuple(str(block) for one in self.sections if one.section.name == "answer" for block in one.blocks)

    @cached_property
    def summary(self) -> "Summary":
        """The small table."""
        from assay.report.study.summary import summary

        return summary(self)

    @property
    def answer(self) -> str:
        """The answer as one text."""
        return " ".join(self.sentences)

    def blocks(self) -> Iterator[Block]:
        """Yield the table, the sentences on each row, the footnotes and the sections."""
        from assay.report.comparison.row_table import comparison_report

        yield from comparison_report(self.comparison)
        for one in self.sections:
            yield one.section.title
            yield from one.blocks

    def printed(self) -> Iterator[Block]:
        """Yield the sections that a terminal prints below the table, each after an empty line."""
        for one in self.sections:
            if one.section.printed:
                yield from ("", one.section.title)
                yield from one.blocks
        yield ""

    def closing(self) -> Iterator[tuple[str, str]]:
        """Yield label and text of the last lines: the answer, the baseline beside it, and what to run next."""
        from assay.report.study.sections.answer import closing

        return closing(self)

    def values(self) -> dict[str, Any]:
        """Return rows, sections and environment as plain values for JSON."""
        sections = {one.section.name: one.section.values(self) for one in self.sections}
        return {**self.comparison.to_json(), "sections": sections}

    def page(self) -> tuple[str, dict[str, Any]]:
        """Return the template of a comparison's page, and its content."""
        from assay.report.comparison.page import content

        return "page.html", content(self)

    def figure(self, name: str = "changes") -> "Figure | None":
        """Return a figure of the page as a chart; None if there is nothing to draw."""
        from assay.report.comparison.figures import FIGURES
        from assay.report.kit.drawing import together, with_print_colours

        drawn = together(FIGURES[name](self.comparison))
        return None if drawn is None else with_print_colours(drawn)


def all_sections() -> tuple[Section, ...]:
    """Return all sections, in the order of the page. They load numpy, which other results do not need."""
    from assay.report.study.sections import choices, factor_effects, stated
    from assay.report.study.sections.answer import ANSWER

    return (
        ANSWER,
        stated.PLACEBOS,
        stated.EXPECTATIONS,
        stated.PUBLISHED,
        stated.LADDER,
        factor_effects.EFFECTS,
        factor_effects.ADDITIVITY,
        factor_effects.PERCENT,
        choices.RANKING,
        choices.FRONTIER,
        choices.EQUIVALENCE,
        choices.TARGET,
        choices.EXCHANGE,
        factor_effects.LEARNING_RATES,
        factor_effects.SIGN_CHANGES,
        choices.LIMITS,
    )


def view(comparison: Comparison) -> View:
    """Return the view of a comparison: the answer of its kind if it has one, or else its rows and sections."""
    module = _BY_KIND.get(comparison.record.kind)
    own: View | None = None if module is None else import_module(module).answer_view(comparison)
    return own or StudyView(comparison)


def finding(study: "StudyView", name: str, title: str) -> str:
    """Return the heading of a part of the page: its finding, or its title where there is nothing to say in a line."""
    found = _FINDINGS[name](study) if name in _FINDINGS else ""
    return capital(found) or title


def _published(study: "StudyView") -> str:
    known = [one for one in study.of(beside) if one.agreement is not Agreement.UNKNOWN]
    agree = sum(one.agreement in (Agreement.WITHIN, Agreement.SAME) for one in known)
    return f"{agree} of {len(known)} published changes go the same way here" if known else ""


def _effects(study: "StudyView") -> str:
    memory = [one for one in study.of(factor_effects) if one.metric == TENSORS_PEAK_BYTES.name]
    single = [one for found in memory for one in found.effects if len(one.changes) == 1]
    if not single:
        return ""
    most = max(single, key=lambda one: abs(one.ratio.value))
    return f"{effect_name(most.changes)} changes memory most: {format_percent(most.ratio.value)} on average"


def _front(study: "StudyView") -> str:
    rows = [one for one in study.of(frontier).rows if one.figures]
    front = [one.row.label for one in rows if one.on_front]
    return f"no other row beats {names(front, 2)}" if 0 < len(front) < len(rows) else ""


def _equivalence(study: "StudyView") -> str:
    found = study.of(loss_differences)
    good = sum(one.verdict.as_good for one in found.values())
    return (
        f"{good} of {len(found)} rows {'has' if good == 1 else 'have'} a loss as good as the baseline's"
        if found
        else ""
    )


def _ranking(study: "StudyView") -> str:
    found = study.of(ranking)
    return f"{found.rows[0].row.label} ranks first" if found is not None and found.rows else ""


def _limits(study: "StudyView") -> str:
    often = Counter(one.limit.value for one in study.of(limits)).most_common(1)
    return f"the limit is {often[0][0]} in {often[0][1]} of {len(study.of(limits))} rows" if often else ""


def _signs(study: "StudyView") -> str:
    count = len(study.of(sign_changes))
    return f"{count} effect{'s change' if count > 1 else ' changes'} sign with another factor" if count else ""


def _rates(study: "StudyView") -> str:
    series = study.of(learning_rates)
    return study.headline.removesuffix(".") if series and "learning rate" in study.headline else ""


def _target(study: "StudyView") -> str:
    return study.headline.removesuffix(".") if study.comparison.record.target_loss is not None else ""


def _predictions(study: "StudyView") -> str:
    rows = (study.comparison.baseline, *study.comparison.rows)
    worst = max((abs(error) for row in rows if (error := prediction_error(row)) is not None), default=None)
    if not worst:
        return "" if worst is None else "memory was predicted to the byte"
    return f"memory was predicted within {two_digits(100 * worst)} %"


_FINDINGS: Mapping[str, "Callable[[StudyView], str]"] = {
    "expectations": expectations_finding,
    "additivity": additivity_finding,
    "ladder": climb_finding,
    "published": _published,
    "effects": _effects,
    "pareto_front": _front,
    "equivalence": _equivalence,
    "ranking": _ranking,
    "limits": _limits,
    "sign_changes": _signs,
    "learning_rates": _rates,
    "target_loss": _target,
    "predictions": _predictions,
}
"""Functions that return the finding of a section or a figure, by its name; an empty text leaves the title."""
