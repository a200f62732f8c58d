"""Sections on the factors of a study: effects, deviations from additivity, percent changes, and learning rates."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.choose.series import RateSeries, learning_rates
from assay.analysis.factors.additivity import GridField, SignChange, deviations, grids, sign_changes
from assay.analysis.factors.changes import FactorEffect, MetricEffects, factor_effects
from assay.analysis.factors.layout import effect_name, level_name, level_names
from assay.analysis.metrics.standard import VAL_LOSS
from assay.report.comparison.wording import (
    as_ratio,
    change,
    in_nats,
    in_points,
    is_exact,
    names,
    plain,
    title,
    too_few,
)
from assay.report.kit.blocks import UNKNOWN, Block, Table, figure
from assay.report.study.sections import Section
from assay.report.study.sections.panels import Estimates, estimate_panels, map_panels, part_panels, rate_panels
from assay.studies.kinds.fractional import Fractional
from assay.units import format_percent

if TYPE_CHECKING:
    from assay.report.kit.drawing import Panel
    from assay.report.study.view import StudyView

_MOST_EFFECTS = 30
"""Most effects in the figure; of more, main effects and then interactions of two factors are drawn."""
_EFFECT_COLUMNS = ("as a ratio", "in points")


def _effects_content(study: "StudyView") -> Iterator[Block]:
    found = study.of(factor_effects)
    for one in found:
        rows = ((effect_name(row.changes), as_ratio(row.ratio), in_points(row.points)) for row in one.effects)
        if one.effects:
            yield Table.of(
                (title(one.metric), *_EFFECT_COLUMNS), rows, right=_EFFECT_COLUMNS, spare=_EFFECT_COLUMNS[1:]
            )
    if any(one.effects for one in found):
        yield from _explained(found)
    yield from _lost(found)


def _lost(found: tuple[MetricEffects, ...]) -> Iterator[str]:
    """Yield the sentences on effects that the rows do not determine, and on levels that no average includes."""
    averaged = [one for one in found if one.effects]
    unknown = dict.fromkeys(changes for one in found for changes in one.unknown)
    if unknown:
        yield (
            f"The measured rows do not determine {len(unknown)} {'other ' if averaged else ''}"
            f"effect{'s' if len(unknown) > 1 else ''}, for which combinations are missing: "
            f"{'; '.join(map(effect_name, unknown))}."
        )
    if absent := dict.fromkeys(change for one in averaged for change in one.absent):
        yield f"No average includes {names([level_name(*one) for one in absent])}, of which no row has a figure."


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


def _effects_values(study: "StudyView") -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") for one in study.of(factor_effects)]


def _effects_panels(study: "StudyView") -> "tuple[Panel, ...]":
    # The page's style is imported here, because the page imports all sections.
    found = []
    for one in study.of(factor_effects):
        shown = next((some for order in (3, 2, 1) if len(some := _up_to(one, order)) <= _MOST_EFFECTS), {})
        found.append(Estimates(title(one.metric), shown, is_exact(one.metric)))
    return estimate_panels(found, "effect as a ratio, %")


def _up_to(one: MetricEffects, order: int) -> dict[str, Any]:
    return {effect_name(effect.changes): effect.ratio for effect in one.effects if len(effect.changes) <= order}


def loss_parts(study: "StudyView") -> tuple[FactorEffect, ...]:
    """Return the effects of single changes on the loss, of a study without times that tries some combinations only.

    Such a study asks which of its parts lower the loss. Others have none.
    """
    record = study.comparison.record
    if record.timed or record.kind != Fractional.kind:
        return ()
    effects = next((one.effects for one in study.of(factor_effects) if one.metric == VAL_LOSS.name), ())
    return tuple(one for one in effects if len(one.changes) == 1)


def loss_parts_panels(study: "StudyView") -> "tuple[Panel, ...]":
    """Return the figure of these effects; empty if there are none."""
    effects = {effect_name(one.changes): one.ratio for one in loss_parts(study)}
    return estimate_panels([Estimates("", effects, exact=False)], "effect on the loss, %")


EFFECTS = Section(
    "effects",
    "Effects of each factor",
    _effects_content,
    _effects_values,
    _effects_panels,
    "Effects against the control's level, on average over the other factors; × is an interaction. A bar that touches "
    "the line cannot be distinguished from no effect.",
)


_MOST_DEVIATIONS = 30
"""Most rows in the figure."""
_DEVIATION_COLUMNS = ("change", "sum of parts", "deviation in points", "deviation as a ratio")


def _additivity_content(study: "StudyView") -> Iterator[Block]:
    found = study.of(deviations)
    for one in found:
        rows = (
            (
                study.comparison.names[row.row],
                format_percent(row.change),
                format_percent(row.expected),
                in_points(row.points),
                as_ratio(row.ratio),
            )
            for row in one.deviations
        )
        # The sum of the parts follows from the change and the deviation in points.
        yield Table.of(
            (title(one.metric), *_DEVIATION_COLUMNS), rows, right=_DEVIATION_COLUMNS, spare=("sum of parts",)
        )
    if found:
        yield (
            "Each row changes several things at once; its parts are rows that change one of them alone. "
            "The deviation in points is the change of the row less the sum of the changes of its parts. "
            "As a ratio, it compares the row with the product of its parts: savings that multiply deviate in points, "
            "and not as a ratio. Below zero, the parts together give a lower figure than expected."
        )
        if any(one.bounded for one in found):
            yield "Brackets are intervals. All intervals of a metric on one scale hold together in 95 % of studies."
        yield from too_few([(one.metric, one.bounded) for one in found])


def _additivity_values(study: "StudyView") -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") for one in study.of(deviations)]


def _additivity_panels(study: "StudyView") -> "tuple[Panel, ...]":
    # The page's style is imported here, because the page imports all sections.
    found = []
    for one in study.of(deviations):
        shown = {study.comparison.names[row.row]: row.points for row in one.deviations}
        found.append(Estimates(title(one.metric), shown, is_exact(one.metric)))
    if any(len(one.by_row) > _MOST_DEVIATIONS for one in found):
        return part_panels(study)
    return (*part_panels(study), *estimate_panels(found, "deviation, percentage points"))


ADDITIVITY = Section(
    "additivity",
    "Do the changes add up?",
    _additivity_content,
    _additivity_values,
    _additivity_panels,
    "Staircases: each part begins where the one above it ends, so the last one ends at their sum; the bar below is the "
    "measured change of all together. Points: the deviation from this sum with its 95 % interval. Left of the line, "
    "the figure is lower than the sum.",
)


def _percent_content(study: "StudyView") -> Iterator[Block]:
    found, labels = study.of(grids), level_names(study.comparison.record)
    for grid in found:
        columns = [labels[grid.across, level] for level in grid.across_levels]
        rows = (
            (labels[grid.down, level], *(_text(one) for one in fields))
            for level, fields in zip(grid.down_levels, grid.fields, strict=True)
        )
        yield Table.of((title(grid.metric), *columns), rows, right=columns)
    if found:
        yield (
            "Each field has the change against the control and, in parentheses, the change against the first row of "
            "its column. All other factors are at the control's level."
        )


def _text(one: GridField | None) -> str:
    if one is None:
        return UNKNOWN
    own = "" if one.column_change is None else f" ({format_percent(one.column_change)})"
    return f"{format_percent(one.change)}{own}"


def _percent_values(study: "StudyView") -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") for one in study.of(grids)]


def _percent_panels(study: "StudyView") -> "tuple[Panel, ...]":
    # The page's style is imported here, because the page imports all sections.
    return map_panels(study.of(grids), title, level_names(study.comparison.record))


PERCENT = Section(
    "percent_changes",
    "Percent change by factor",
    _percent_content,
    _percent_values,
    _percent_panels,
    "Change against the control in percent, and deviation from the sum of the single changes in percentage "
    "points. Blue is lower, orange is higher; the colour is strongest at the largest number of a map, or at 5.",
    printed=False,
)


def _sign_changes_content(study: "StudyView") -> Iterator[Block]:
    if found := study.of(sign_changes):
        yield Table.of(("metric", "level", "lower at", "higher at"), map(_sign_changes_row, found))
        yield (
            "Each change is against the control's level of the same factor, with all other levels equal, and can be "
            "told from zero. A result at one level of the other factor does not carry over."
        )


def _sign_changes_row(one: SignChange) -> tuple[str, ...]:
    rest = "".join(f", {name}={level}" for name, level in one.rest)
    return (
        one.metric.title,
        f"{one.factor}={one.level}{rest}",
        f"{one.other}={one.lowers_at}: {change(one.lowered)}",
        f"{one.other}={one.raises_at}: {change(one.raised)}",
    )


def _sign_changes_values(study: "StudyView") -> list[dict[str, Any]]:
    return [
        {
            **one._asdict(),
            "metric": one.metric.name,
            "lowered": plain(one.lowered),
            "raised": plain(one.raised),
            "rest": dict(one.rest),
        }
        for one in study.of(sign_changes)
    ]


SIGN_CHANGES = Section("sign_changes", "Effects that change sign", _sign_changes_content, _sign_changes_values)


def _learning_rates_content(study: "StudyView") -> Iterator[Block]:
    comparison, found = study.comparison, study.of(learning_rates)
    if not found:
        return
    others = any(one.others for one in found)
    columns = ("batch size", "best rate", "loss", "as good", "trained without diverging", "remark")
    rows = (_learning_rates_row(one) for one in found)
    shown = ("batch size", "other levels", *columns[1:]) if others else columns
    yield Table.of(shown, rows if others else ((row[0], *row[2:]) for row in rows), right=("best rate", "loss"))
    yield (
        f"The loss is the mean validation loss over seeds. Rates are as good if their loss is within "
        f"{comparison.record.loss_margin:g}{in_nats(comparison)} of the best, without a worse one between. Chance is "
        "not considered, and nothing is known between and beyond the tested rates."
    )


def _learning_rates_row(one: RateSeries) -> tuple[str, ...]:
    best, stable = one.best, [rate.rate for rate in one.rates if rate.loss is not None]
    diverged = [f"{rate.rate:g}" for rate in one.rates if rate.diverged]
    remarks = [f"diverged at {', '.join(diverged)}"] if diverged else []
    if side := one.open_ended:
        remarks.append(f"a {side} rate may be better: the best one is the {side.removesuffix('er')}est tested")
    return (
        str(one.batch_size),
        one.others,
        UNKNOWN if best is None else f"{best.rate:g}",
        figure(best.loss if best else None),
        _span([rate.rate for rate in one.good]),
        _span(stable) if len(stable) < len(one.rates) else "all",
        "; ".join(remarks),
    )


def _span(rates: list[float]) -> str:
    if not rates:
        return "none"
    return f"{rates[0]:g}" if len(rates) == 1 else f"{min(rates):g} to {max(rates):g}"


def _learning_rates_values(study: "StudyView") -> list[dict[str, Any]]:
    return [
        {
            "batch_size": one.batch_size,
            "others": one.others,
            "best": one.best.rate if one.best else None,
            "as_good": [rate.rate for rate in one.good],
            "rates": [{**rate._asdict(), "row": rate.row.treatment} for rate in one.rates],
            "best_may_be": one.open_ended or None,
        }
        for one in study.of(learning_rates)
    ]


def _learning_rates_panels(study: "StudyView") -> "tuple[Panel, ...]":
    return rate_panels(study)


LEARNING_RATES = Section(
    "learning_rates",
    "Learning rates",
    _learning_rates_content,
    _learning_rates_values,
    _learning_rates_panels,
    "Mean validation loss over seeds by learning rate, on a logarithmic axis. A × marks a rate with a diverged run.",
)
