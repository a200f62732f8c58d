"""Effects of each factor as tables, one for each metric, with a figure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.factors.changes import MetricEffects, factor_effects
from assay.analysis.factors.layout import effect_name
from assay.report.blocks import Block, Table
from assay.report.study.factors.wording import as_ratio, in_points, is_exact, title, too_few
from assay.report.study.section import Section

if TYPE_CHECKING:
    from assay.report.page.panels import Panel
    from assay.report.study.view import StudyView

_MOST_DRAWN = 30
"""Most effects in the figure; of more, main effects and then interactions of two factors are drawn."""
_COLUMNS = ("as a ratio", "in points")


def _content(study: "StudyView") -> Iterator[Block]:
    found = study.of(factor_effects)
    for one in found:
        rows = ((effect_name(row.changes), as_ratio(row.ratio), in_points(row.points)) for row in one.effects)
        yield Table.of((title(one.metric), *_COLUMNS), rows, right=_COLUMNS, spare=_COLUMNS[1:])
    if found:
        yield from _explained(found)


def _explained(found: tuple[MetricEffects, ...]) -> Iterator[str]:
    yield (
        "An effect compares a level with the control's level of the same factor, on average over the levels of all "
        "other factors. A × B is an interaction: how much the effect of A differs if B is changed too. It is zero if "
        "the changes add up (in points of the control) or multiply (as a ratio). Savings that multiply do not add up "
        "in points, so look at both."
    )
    if any(one.bounded for one in found):
        yield (
            "Brackets are intervals. All intervals of a metric on one scale hold together in 95 % of studies. "
            "An effect whose interval contains zero cannot be distinguished from none."
        )
    yield from too_few([(one.metric, one.bounded) for one in found])
    aliased = {effect.changes: effect.aliases for one in found for effect in one.effects if effect.aliases}
    for changes, others in aliased.items():
        same = " = ".join(map(effect_name, (changes, *others)))
        yield f"Cannot be told apart: {same}. The figure is of the first if the others are zero."
    unknown = dict.fromkeys(changes for one in found for changes in one.unknown)
    if unknown:
        yield (
            f"The measured rows do not determine {len(unknown)} other effects, for which combinations are missing: "
            f"{'; '.join(map(effect_name, unknown))}."
        )


def _values(study: "StudyView") -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") for one in study.of(factor_effects)]


def _panels(study: "StudyView") -> "tuple[Panel, ...]":
    # The page's style is imported here, because the page imports all sections.
    from assay.report.study.factors.drawing import Estimates, estimate_panels

    found = []
    for one in study.of(factor_effects):
        shown = next((some for order in (3, 2, 1) if len(some := _up_to(one, order)) <= _MOST_DRAWN), {})
        found.append(Estimates(title(one.metric), shown, is_exact(one.metric)))
    return estimate_panels(found, "effect as a ratio, %")


def _up_to(one: MetricEffects, order: int) -> dict[str, Any]:
    return {effect_name(effect.changes): effect.ratio for effect in one.effects if len(effect.changes) <= order}


SECTION = Section(
    "effects",
    "Effects of each factor",
    _content,
    _values,
    _panels,
    "Effects against the control's level, on average over the other factors; × is an interaction. A bar that touches "
    "the line cannot be distinguished from no effect.",
)
