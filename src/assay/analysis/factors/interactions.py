"""Effects of each factor of a study, and interactions of two and three factors, by metric."""

from assay.analysis.comparison import Comparison
from assay.analysis.factors.changes import ChangeEstimate, Scale, compared_metrics, estimates, row_changes
from assay.analysis.factors.layout import Change, layout
from assay.analysis.factors.terms import model
from assay.config.base import Frozen


class FactorEffect(Frozen):
    """A main effect, or an interaction of two or three factors."""

    changes: tuple[Change, ...]
    """The level of each of its factors that is compared with the control's level."""
    aliases: tuple[tuple[Change, ...], ...]
    """Effects that the design cannot distinguish from this one; the figure is the sum of all."""
    ratio: ChangeEstimate
    """The effect as a ratio less one. An interaction is the ratio of two ratios, less one."""
    points: ChangeEstimate
    """The effect in points of the control: the additive scale."""


class MetricEffects(Frozen):
    """Effects of all factors on one metric."""

    metric: str
    effects: tuple[FactorEffect, ...]
    unknown: tuple[tuple[Change, ...], ...]
    """Effects that the measured rows do not determine."""
    bounded: bool
    """True if there are processes or seeds enough for intervals."""


def factor_effects(comparison: Comparison) -> tuple[MetricEffects, ...]:
    """Return the effects on every metric, for studies whose rows determine them; the simplest effects are first."""
    design, found = layout(comparison.record), []
    for metric in compared_metrics(comparison):
        changes = row_changes(comparison, metric)
        solved = None if changes is None else model(design, changes.rows, changes.covariance)
        if changes is None or solved is None:
            continue
        ratio, points = (estimates(changes, solved.weights, scale, len(solved.terms)) for scale in Scale)
        effects = (
            FactorEffect(changes=term.changes, aliases=term.aliases, ratio=one, points=other)
            for term, one, other in zip(solved.terms, ratio, points, strict=True)
        )
        unknown = tuple(term.changes for term in solved.unknown)
        found.append(
            MetricEffects(metric=metric.name, effects=tuple(effects), unknown=unknown, bounded=changes.bounded)
        )
    return tuple(found)
