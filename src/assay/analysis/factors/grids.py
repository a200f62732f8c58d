"""Percent changes of a study as grids of two factors, with every other factor at the control's level.

Each field has the change against the control of the study, and the change against its column's own control. The
latter is the row with the same level of the second factor and the first level of the first factor.
"""

from itertools import combinations
from math import isnan

import numpy as np

from assay.analysis.comparison import Comparison
from assay.analysis.factors.additivity import deviations_of
from assay.analysis.factors.changes import RowChanges, Scale, compared_metrics, row_changes
from assay.analysis.factors.layout import FactorLayout, layout
from assay.config.base import Frozen
from assay.records.study import BASELINE
from assay.studies.factors import OPTIMIZATIONS

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
