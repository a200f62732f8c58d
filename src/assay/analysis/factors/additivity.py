"""Deviations from additivity, grids of two factors, and effects that change sign with another factor.

The single changes are rows of the same study. A row is taken apart into the parts of its stack of optimizations and
its levels of all other factors. If a part has no row of its own, the stack counts as one change. In points, the
deviation is change of the row − sum of the single changes. Savings that multiply deviate there: −50 % and −50 % make
−75 %, which is 25 points above −100 %. On the scale of ratios the deviation is (row ratio / product of the single
ratios) − 1, which is zero in this case.

Each field has the change against the control of the study, and the change against its column's own control. The
latter is the row with the same level of the second factor and the first level of the first factor.

The effect of a level is the change from the row that has the control's level of that factor, with all else equal. An
effect changes sign if two of them can be told from zero, have opposite signs, and differ in one other factor only.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from math import isnan
from typing import NamedTuple

import numpy as np

from assay.analysis.choose.criteria import LogChange, finished_rows, log_change
from assay.analysis.comparison import Comparison
from assay.analysis.factors.changes import ChangeEstimate, RowChanges, Scale, compared_metrics, estimates, row_changes
from assay.analysis.factors.layout import Change, FactorLayout, layout
from assay.analysis.metrics import Metric, metrics
from assay.analysis.row import Row
from assay.config.base import Frozen
from assay.records.study import BASELINE, is_placebo
from assay.studies.factors import NONE, OPTIMIZATIONS

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


MOST_FACTORS = 4
"""Most factors of a study that has grids; more would make too many pairs to read."""


class GridField(Frozen):
    """One field of a grid."""

    row: str
    """Label of the study's row."""
    change: float
    """Change against the control of the study, as a fraction."""
    column_change: float | None
    """Change against the control of the column; None if that has no figure."""
    deviation: float | None
    """Deviation from additivity in points; None if it is not defined."""


class Grid(Frozen):
    """Percent changes of one metric by two factors."""

    metric: str
    down: str
    """Factor whose levels are the rows of the grid."""
    across: str
    down_levels: tuple[str, ...]
    across_levels: tuple[str, ...]
    fields: tuple[tuple[GridField | None, ...], ...]
    """Fields by row and column; None where the study has no figure."""


def grids(comparison: Comparison) -> tuple[Grid, ...]:
    """Return the grids of every metric that the study compares."""
    design = layout(comparison.record)
    pairs = _pairs(design)
    known = compared_metrics(comparison) if pairs else []
    found = ((one.name, row_changes(comparison, one)) for one in known)
    return tuple(grid for name, changes in found for grid in grids_of(design, name, changes))


def grids_of(design: FactorLayout, metric: str, changes: RowChanges | None) -> tuple[Grid, ...]:
    """Return a grid of one metric for each pair of factors that change together in some row.

    Optimizations are down and the other factor is across; of others, the one with more levels is down.
    """
    if changes is None:
        return ()
    values = changes.contrasts(np.eye(len(changes.rows)), Scale.POINTS, 1).values
    by_row = {BASELINE: 0.0, **dict(zip(changes.rows, map(float, values), strict=True))}
    found = deviations_of(design, metric, changes)
    deviating = {} if found is None else {row.row: row.points.value for row in found.deviations}
    return tuple(_grid(metric, design, both, by_row, deviating) for both in _pairs(design))


def _pairs(design: FactorLayout) -> list[tuple[int, int]]:
    """Return the pairs of factors that have a grid, by their places in the design; none of many factors."""
    if len(design.factors) > MOST_FACTORS:
        return []
    pairs = combinations(range(len(design.factors)), 2)
    return [both for pair in pairs if (both := _ordered(design, pair)) and _together(design, both)]


def _ordered(design: FactorLayout, pair: tuple[int, int]) -> tuple[int, int]:
    def rank(at: int) -> tuple[bool, int]:
        return design.factors[at].key == OPTIMIZATIONS, len(design.factors[at].levels)

    one, other = pair
    return (other, one) if rank(other) > rank(one) else (one, other)


def _together(design: FactorLayout, pair: tuple[int, int]) -> bool:
    """Return True if some row changes both factors and nothing else."""
    keys = {design.factors[at].key for at in pair}
    return any({key for key, _ in design.changes(row)} == keys for row in design.rows)


def _grid(
    metric: str, design: FactorLayout, pair: tuple[int, int], changes: dict[str, float], deviating: dict[str, float]
) -> Grid:
    down, across = (design.factors[at] for at in pair)
    others = {
        (levels[pair[0]], levels[pair[1]]): name
        for name, levels in reversed([*design.rows.items()])
        if {key for key, _ in design.changes(name)} <= {down.key, across.key}
    }

    def field(one: str, other: str) -> GridField | None:
        name, control = others.get((one, other)), others.get((down.levels[0], other))
        change = changes.get(name) if name is not None else None
        before = changes.get(control) if control is not None else None
        if name is None or change is None or isnan(change):
            return None
        own = None if before is None else (1 + change) / (1 + before) - 1
        return GridField(row=name, change=change, column_change=own, deviation=deviating.get(name))

    fields = tuple(tuple(field(one, other) for other in across.levels) for one in down.levels)
    return Grid(
        metric=metric,
        down=down.key,
        across=across.key,
        down_levels=down.levels,
        across_levels=across.levels,
        fields=fields,
    )


Levels = Mapping[str, str]


class SignChange(NamedTuple):
    """One level whose effect on a metric has opposite signs at two levels of another factor."""

    metric: Metric
    factor: str
    level: str
    control: str
    """Level of the factor from which the change is counted."""
    other: str
    """Factor at whose levels the signs differ."""
    lowers_at: str
    lowered: LogChange
    raises_at: str
    raised: LogChange
    rest: tuple[tuple[str, str], ...]
    """Levels of all further factors."""


def sign_changes(comparison: Comparison) -> tuple[SignChange, ...]:
    """Return the effects on shown metrics that change sign, in the order of metrics and rows."""
    by_levels = {_key(levels): row for row in finished_rows(comparison) if (levels := _levels(comparison, row))}
    control = _levels(comparison, comparison.baseline)
    if len(control) < 2:
        return ()
    shown = [metric for metric in metrics().values() if metric.shown]
    return tuple(
        one for metric in shown for factor in control for one in _of_factor(metric, factor, control[factor], by_levels)
    )


def _of_factor(
    metric: Metric, factor: str, control: str, rows: Mapping[frozenset[tuple[str, str]], Row]
) -> Iterator[SignChange]:
    """Yield the sign changes of one factor's levels."""
    found: dict[str, list[tuple[Levels, LogChange]]] = {}
    for key, row in rows.items():
        levels = dict(key)
        start = rows.get(_key({**levels, factor: control}))
        if levels.get(factor, control) == control or start is None:
            continue
        after, before = log_change(row, metric), log_change(start, metric)
        if after is not None and before is not None and (change := after.since(before)).sign:
            rest = {name: level for name, level in levels.items() if name != factor}
            found.setdefault(levels[factor], []).append((rest, change))
    for level, effects in sorted(found.items()):
        for (one, change), (two, second) in combinations(sorted(effects, key=lambda at: sorted(at[0].items())), 2):
            apart = [name for name in one if one[name] != two.get(name)]
            if change.sign != second.sign and len(apart) == 1:
                low, high = ((one, change), (two, second)) if change.sign < 0 else ((two, second), (one, change))
                others = tuple((name, one[name]) for name in sorted(one) if name != apart[0])
                ends = (low[0][apart[0]], low[1], high[0][apart[0]], high[1])
                yield SignChange(metric, factor, level, control, apart[0], *ends, others)


def _levels(comparison: Comparison, row: Row) -> Levels:
    cells = comparison.record.of(row.treatment)
    return cells[0].cell.levels if cells else {}


def _key(levels: Levels) -> frozenset[tuple[str, str]]:
    return frozenset(levels.items())
