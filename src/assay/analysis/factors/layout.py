"""The layout of a study: its factors as the record has them, and the level of each factor in each row.

The control's level is the first of each factor, whichever row is listed first. A placebo is a level of its own. Cells
without levels, in old records, differ in their optimizations only: their level is the label of the row.

Short names of a study's rows for a reader, such as ``"context × 2 · sgd"``. A row is named by what it changes in the
control: what all rows share is not repeated. A level that says enough stands without its factor. A technique stands
without its fields where the study has it with one set of them only. A setting with three numbers or more is always
named. Two rows never have the same name.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from assay.config.run import Spec
from assay.records.study import AGAIN, BASELINE, Cell, ComparisonRecord, is_placebo
from assay.studies.factors import NONE, OPTIMIZATIONS

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
    if "=" in key and level in ("on", "off"):
        return _rung_name(key) if level == "on" else f"{_rung_name(key)} off"
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


def _rung_name(rung: str) -> str:
    """Return the name of a rung of a ladder, whose key is its overrides, or a stack with fields after a colon."""
    if "=" in rung.split(":", 1)[0]:
        return JOINT.join(level_name(*word.split("=", 1)) for word in rung.split())
    return _PLUS.join(" ".join((one.name, *_fields_said(one, one.fields))) for one in _specs(rung)) or rung


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


JOINT = " · "
"""Stands between the levels of a name."""
_PLUS = " + "
_SWEEP = 3
"""Least number of values of a setting that makes it part of every name."""
_ACRONYMS = {"sgd": "SGD"}


def row_names(record: ComparisonRecord) -> dict[str, str]:
    """Return a short name for each row of a study, by its treatment; both controls keep theirs."""
    named = names_of(planned_layout(record))
    return {**{row: row for row in record.treatments}, **named, BASELINE: BASELINE, AGAIN: AGAIN}


def planned_names(cells: Sequence[Cell]) -> dict[str, str]:
    """Return a short name for each row of a study that is planned, by its treatment; both controls keep theirs."""
    return {**{one.treatment: one.treatment for one in cells}, **names_of(layout_of_cells(cells))}


def cell_names(cells: Sequence[Cell], rows: Mapping[str, str]) -> dict[str, str]:
    """Return a short name for each cell, such as ``"lion · 4 layers, seed 0"``, from the names of rows."""
    return {one.name: rows[one.treatment] + one.name.removeprefix(one.treatment) for one in cells}


def names_of(layout: FactorLayout) -> dict[str, str]:
    """Return a short name for each row of a layout but the control; where two would be alike, both keep their own."""
    fields, swept = _fields(layout), _swept(layout)
    named = {row: _named(_said(layout, row, swept), fields) or row for row in layout.rows if row != BASELINE}
    often = Counter(named.values())
    return {row: name if often[name] == 1 else row for row, name in named.items()}


def control_name(record: ComparisonRecord) -> str:
    """Return the levels of a study's control, such as ``"rate 6e-4 · batch 12"``; empty without names."""
    layout = planned_layout(record)
    levels = [(factor.key, factor.levels[0]) for factor in layout.factors if factor.levels]
    told = [(key, level) for key, level in levels if level not in (NONE, "default")]
    return _named(told, _fields(layout)) if record.name else ""


def level_names(record: ComparisonRecord) -> dict[Change, str]:
    """Return a short name for each level of each factor, by key and level."""
    layout = planned_layout(record)
    fields = _fields(layout)
    return {(one.key, level): _named([(one.key, level)], fields) for one in layout.factors for level in one.levels}


def _swept(layout: FactorLayout) -> frozenset[str]:
    """Return the settings with so many numbers that a row without its number would be a riddle."""
    several = (one for one in layout.factors if len(layout.factors) > 1 and len(one.levels) >= _SWEEP)
    return frozenset(one.key for one in several if all(map(is_number, one.levels)))


def _said(layout: FactorLayout, row: str, swept: frozenset[str]) -> tuple[Change, ...]:
    """Return the levels by which a row is named: those that are not the control's, and those of swept settings."""
    both = zip(layout.factors, layout.rows[row], strict=True)
    return tuple((one.key, level) for one, level in both if level != one.levels[0] or one.key in swept)


def _named(changes: Iterable[Change], fields: Mapping[str, Sequence[str]]) -> str:
    return JOINT.join(
        _stack(level, fields) if key == OPTIMIZATIONS else level_name(key, level) for key, level in changes
    )


def _stack(level: str, fields: Mapping[str, Sequence[str]]) -> str:
    """Return the techniques of a level; the fields of one that the study has with several follow its name."""
    if level == NONE or is_placebo(level):
        return "no optimization" if level == NONE else level
    return _PLUS.join(_technique(one, fields) for one in _specs(level)) or level


def _technique(one: Spec, fields: Mapping[str, Sequence[str]]) -> str:
    unlike = [name for name in fields[one.name] if name in one.fields]
    alone = len(fields[one.name]) == 1
    shown = [f"{one.fields[name]}" for name in unlike] if alone else _fields_said(one, unlike)
    return " ".join((_ACRONYMS.get(one.name, one.name), *shown))


def _fields_said(one: Spec, names: Iterable[str]) -> list[str]:
    return [f"{name.replace('_', ' ')} {one.fields[name]}" for name in names]


def _fields(layout: FactorLayout) -> dict[str, list[str]]:
    """Return the fields by technique in which its uses over the whole study differ."""
    stacks = (one for factor in layout.factors if factor.key == OPTIMIZATIONS for one in factor.levels)
    uses: dict[str, list[Spec]] = {}
    for one in (spec for stack in stacks for spec in _specs(stack)):
        uses.setdefault(one.name, []).append(one)
    return {
        name: [key for key in dict.fromkeys(key for one in some for key in one.fields) if not _agree(some, key)]
        for name, some in uses.items()
    }


def _agree(some: Sequence[Spec], key: str) -> bool:
    return len({str(one.fields.get(key)) for one in some}) == 1


def _specs(stack: str) -> tuple[Spec, ...]:
    """Return the techniques of a level; none if it is a name of its own."""
    if stack == NONE or is_placebo(stack):
        return ()
    try:
        return Spec.parse_stack(stack)
    except ValueError:
        return ()
