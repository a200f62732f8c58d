"""Headings of a page that are findings: what a part shows in this study, instead of what it is about."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from assay.analysis.choose.criteria import loss_differences
from assay.analysis.choose.learning_rates import learning_rates
from assay.analysis.choose.limits import limits
from assay.analysis.choose.ranking import frontier, ranking
from assay.analysis.claims import Agreement, beside
from assay.analysis.factors.additivity import sign_changes
from assay.analysis.factors.changes import factor_effects
from assay.analysis.factors.layout import effect_name
from assay.analysis.metrics.memory import TENSORS_PEAK_BYTES
from assay.report.comparison.wording import prediction_error
from assay.report.study.headline import capital
from assay.report.study.sections.answer import additivity_finding, climb_finding, expectations_finding
from assay.report.study.sections.wording import names, two_digits
from assay.units import format_percent

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


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
