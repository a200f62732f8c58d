"""The layout of a study: its factors as the record has them, and the level of each factor in each row.

The control's level is the first of each factor, whichever row is listed first. A placebo is a level of its own. Cells
without levels, in old records, differ in their optimizations only: their level is the label of the row.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from assay.records.study import AGAIN, BASELINE, Cell, ComparisonRecord
from assay.studies.factors import NONE, OPTIMIZATIONS, is_placebo

Levels = tuple[str, ...]
"""Level of each factor, in the order of the factors."""
Change = tuple[str, str]
"""A factor's key, and a level of it that is not the control's."""
_TIMES = re.compile(r"(?<![\w.])x ?(\d+)\b")
_SWITCHES = frozenset({"on", "off", "with", "without", "yes", "no", "true", "false"})
"""Levels that say nothing without the name of their factor."""
_SETTINGS = {
    "training.batch_size": "batch {}",
    "training.learning_rate": "rate {}",
    "training.steps": "{} steps",
    "model.context_length": "context {}",
    "model.n_layer": "{} layers",
    "model.n_embd": "width {}",
    "model.n_head": "{} heads",
}
"""Common settings with a level, as one says them."""


class FactorLevels(NamedTuple):
    """One factor of a study, with the levels that its rows have."""

    key: str
    levels: tuple[str, ...]
    """The control's level is the first; the others are in the order of the rows."""


class FactorLayout(NamedTuple):
    """Factors of a study, and the levels of its rows."""

    factors: tuple[FactorLevels, ...]
    rows: Mapping[str, Levels]
    """Levels by row: the control, then the rows in the order of listing."""

    def changes(self, row: str) -> tuple[Change, ...]:
        """Return the changes that a row makes to the control, in the order of the factors."""
        both = zip(self.factors, self.rows[row], strict=True)
        return tuple((factor.key, level) for factor, level in both if level != factor.levels[0])


def layout(record: ComparisonRecord) -> FactorLayout:
    """Return the factors of a study, and the level of each factor in each row that has a cell."""
    return _layout(record.treatments, _levels_by_row(one.cell for one in record.cells))


def layout_of(named: Mapping[str, Mapping[str, str]]) -> FactorLayout:
    """Return the factors of rows by their levels; the first row is the control, and each has all of its factors."""
    keys = tuple(next(iter(named.values()), {}))
    rows = {name: tuple(levels[key] for key in keys) for name, levels in named.items()}
    columns = zip(*rows.values(), strict=True)
    return FactorLayout(
        tuple(FactorLevels(key, tuple(dict.fromkeys(one))) for key, one in zip(keys, columns, strict=True)), rows
    )


def planned_layout(record: ComparisonRecord) -> FactorLayout:
    """Return the layout with the rows whose cells a limit of time held back."""
    held_back = {one.treatment: one.levels for one in record.held_back if one.levels}
    return _layout(record.treatments, {**held_back, **_levels_by_row(one.cell for one in record.cells)})


def layout_of_cells(cells: Iterable[Cell]) -> FactorLayout:
    """Return the layout of a study's plan, which has no record yet."""
    known = _levels_by_row(cells)
    return _layout([name for name in known if name not in (BASELINE, AGAIN)], known)


def _layout(treatments: Sequence[str], known: Mapping[str, Mapping[str, str]]) -> FactorLayout:
    control = known.get(BASELINE) or known.get(AGAIN) or {}
    others = {name: {**control, **known[name]} for name in treatments if name in known}
    return layout_of({BASELINE: control, **others})


def level_name(key: str, level: str) -> str:
    """Return a level as one says it: ``"batch 24"``, ``"without warm-up"``, ``"context × 2"``, ``"sgd"``."""
    said = _TIMES.sub(r"× \1", level)
    if key == OPTIMIZATIONS or is_placebo(level):
        return said
    if key in _SETTINGS:
        return _SETTINGS[key].format(said)
    last = key.rsplit(".", 1)[-1].replace("_", " ")
    if level == "on":
        return last
    if level in ("with", "without"):
        return f"{level} {last}"
    return f"{last} {said}" if "." in key or level in _SWITCHES or is_number(level) else said


def effect_name(changes: Iterable[Change]) -> str:
    """Return the name of a main effect or an interaction, such as ``"lion × n_layer=8"``."""
    return " × ".join(level_name(*one) for one in changes)


def _levels_by_row(cells: Iterable[Cell]) -> dict[str, Mapping[str, str]]:
    found: dict[str, Mapping[str, str]] = {}
    for one in cells:
        name = one.treatment
        found.setdefault(name, one.levels or {OPTIMIZATIONS: NONE if name in (BASELINE, AGAIN) else name})
    return found


def is_number(text: str) -> bool:
    """Return whether a level is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
