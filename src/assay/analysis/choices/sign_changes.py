"""Effects that change sign: a level that lowers a metric at one level of another factor, and raises it at another.

The effect of a level is the change from the row that has the control's level of that factor, with all else equal. An
effect changes sign if two of them can be told from zero, have opposite signs, and differ in one other factor only.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from assay.analysis.choices.criteria import finished
from assay.analysis.choices.log_change import LogChange, log_change
from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric, metrics
from assay.analysis.row import Row

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
    by_levels = {_key(levels): row for row in finished(comparison) if (levels := _levels(comparison, row))}
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
