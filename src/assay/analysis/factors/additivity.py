"""Deviation from additivity: the change of a row that changes several things, less the sum of the single changes.

The single changes are rows of the same study. A row is taken apart into the parts of its stack of optimizations and
its levels of all other factors. If a part has no row of its own, the stack counts as one change. In points, the
deviation is change of the row − sum of the single changes. Savings that multiply deviate there: −50 % and −50 % make
−75 %, which is 25 points above −100 %. On the scale of ratios the deviation is (row ratio / product of the single
ratios) − 1, which is zero in this case.
"""

from collections.abc import Collection, Mapping

import numpy as np

from assay.analysis.comparison import Comparison
from assay.analysis.factors.changes import ChangeEstimate, RowChanges, Scale, compared_metrics, estimates, row_changes
from assay.analysis.factors.layout import Change, FactorLayout, layout
from assay.config.base import Frozen
from assay.studies.factors import NONE, OPTIMIZATIONS, is_placebo

Changes = frozenset[Change]


class Deviation(Frozen):
    """Deviation of one row from the sum of its single changes."""

    row: str
    changes: tuple[Change, ...]
    """Levels of the row that are not the control's."""
    singles: tuple[str, ...]
    """Rows of the single changes."""
    parts: tuple[float, ...]
    """Change of each of these rows, as a fraction; they sum to `expected`."""
    change: float
    """Change of the row against the control, as a fraction."""
    expected: float
    """Sum of the single changes, as a fraction."""
    points: ChangeEstimate
    """Change of the row less the sum of the single changes, in points."""
    ratio: ChangeEstimate
    """Ratio of the row over the product of the single ratios, less one."""


class MetricDeviations(Frozen):
    """Deviations of all rows in one metric."""

    metric: str
    deviations: tuple[Deviation, ...]
    bounded: bool
    """True if there are processes or seeds enough for intervals."""


def deviations(comparison: Comparison) -> tuple[MetricDeviations, ...]:
    """Return the deviations of every metric that has rows with several changes, and rows of each of them alone."""
    design = layout(comparison.record)
    found = (deviations_of(design, one.name, row_changes(comparison, one)) for one in compared_metrics(comparison))
    return tuple(one for one in found if one is not None)


def deviations_of(design: FactorLayout, metric: str, changes: RowChanges | None) -> MetricDeviations | None:
    """Return the deviations in one metric; None if no row has several changes and rows of each of them alone."""
    singles = {} if changes is None else single_rows(design, changes.rows)
    if changes is None or not singles:
        return None
    every = _deviations(design, changes, singles)
    return MetricDeviations(metric=metric, deviations=every, bounded=changes.bounded) if every else None


def single_rows(design: FactorLayout, rows: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the rows of the single changes, by row with several changes, if all of them are among `rows`."""
    known: dict[Changes, str] = {}
    for name in rows:
        known.setdefault(_parts(design, name), name)
        known.setdefault(frozenset(design.changes(name)), name)
    found = {}
    for name in rows:
        ways = (_parts(design, name), frozenset(design.changes(name)))
        singles = next((one for way in ways if (one := _alone(way, known)) is not None), None)
        if singles is not None:
            found[name] = singles
    return found


def _alone(changes: Changes, known: Mapping[Changes, str]) -> tuple[str, ...] | None:
    """Return the row of each change alone; None if one is missing, or if there is only one change."""
    singles = [known.get(frozenset({one})) for one in sorted(changes)]
    names = tuple(one for one in singles if one is not None)
    return names if len(names) == len(singles) > 1 else None


def _parts(design: FactorLayout, row: str) -> Changes:
    """Return the changes of a row, with a stack of optimizations taken apart."""
    first = {factor.key: factor.levels[0] for factor in design.factors}
    found: set[Change] = set()
    for key, level in design.changes(row):
        own, control = _stack(level), _stack(first[key])
        if key == OPTIMIZATIONS and control <= own:
            found |= {(key, part) for part in own - control}
        else:
            found.add((key, level))
    return frozenset(found)


def _stack(level: str) -> frozenset[str]:
    return frozenset({level} if is_placebo(level) else set(level.split("+")) - {NONE})


def _deviations(
    design: FactorLayout, changes: RowChanges, singles: Mapping[str, tuple[str, ...]]
) -> tuple[Deviation, ...]:
    place = {name: at for at, name in enumerate(changes.rows)}
    own, parts = (np.zeros((len(singles), len(place))) for _ in range(2))
    for at, (row, others) in enumerate(singles.items()):
        own[at, place[row]] = 1.0
        parts[at, [place[other] for other in others]] = 1.0
    family = len(singles)
    points, ratio = (estimates(changes, own - parts, scale, family) for scale in (Scale.POINTS, Scale.RATIO))
    alone = changes.contrasts(np.eye(len(place)), Scale.POINTS, family).values
    whole, expected = (changes.contrasts(one, Scale.POINTS, family).values for one in (own, parts))
    return tuple(
        Deviation(
            row=row,
            changes=design.changes(row),
            singles=others,
            parts=tuple(float(alone[place[other]]) for other in others),
            change=float(whole[at]),
            expected=float(expected[at]),
            points=points[at],
            ratio=ratio[at],
        )
        for at, (row, others) in enumerate(singles.items())
        if np.isfinite((whole[at], expected[at], points[at].value, ratio[at].value)).all()  # a part may lack runs
    )
