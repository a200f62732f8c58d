"""Sentences on a study that a limit of time ended: what did not begin, and what it therefore cannot conclude."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.analysis.factors.layout import Change, FactorLayout, effect_name, planned
from assay.analysis.row import seeds_of, usable
from assay.analysis.typical import LEAST_SEEDS
from assay.records.study import BASELINE, ComparisonRecord

if TYPE_CHECKING:
    from assay.analysis.factors.terms import Model

_MOST = 12
"""Most names in one list."""


def cut_short(record: ComparisonRecord) -> list[str]:
    """Return sentences on what a study that its limit of time ended cannot conclude."""
    done = {name: usable(record.of(name)) for name in record.treatments}
    fewer = [
        f"{name} ({len(cells)} of {record.planned})" for name, cells in done.items() if 0 < len(cells) < record.planned
    ]
    none = [name for name, cells in done.items() if not cells]
    seeds = {name: len(seeds_of(cells)) for name, cells in done.items()}
    wide = [name for name, count in seeds.items() if 0 < count < LEAST_SEEDS <= len(record.seeds)]
    listed = _listed(_not_begun(record), "; ")
    said = [f"The limit of time ended the study{before(record)}{f': {listed}' if listed else ''}."]
    if fewer:
        said.append(f"Fewer processes than planned: {_listed(fewer)}.")
    if wide:
        said.append(f"No interval of the loss, because fewer than three seeds ran: {_listed(wide)}.")
    if none:
        said.append(f"No process, so no conclusion: {_listed(none)}.")
    if lost := [effect_name(one) for one in lost_effects(record)]:
        said.append(f"Effects that the rows do not determine, because combinations are missing: {_listed(lost)}.")
    return said


def lost_effects(record: ComparisonRecord) -> list[tuple[Change, ...]]:
    """Return the effects that the planned rows determine and those that ran do not; the simplest are first."""
    design = planned(record)
    rows = [name for name in design.rows if name != BASELINE]
    ran = [name for name in rows if usable(record.of(name))]
    whole, found = _model(design, rows), _model(design, ran)
    known = {term.changes for term in found.terms} if found else set()
    return [term.changes for term in whole.terms if term.changes not in known] if whole else []


def _model(design: FactorLayout, rows: Sequence[str]) -> "Model | None":
    """Return the effects that some rows determine; which these are does not depend on the rows' errors."""
    import numpy as np

    from assay.analysis.factors.terms import model

    return model(design, rows, np.eye(len(rows))) if rows else None


def before(record: ComparisonRecord) -> str:
    """Return how many cells could not begin, to be put after "ended"; empty if all did."""
    held = len(record.held_back)
    return f" before {held} of {held + len(record.cells) + len(record.nudged)} cells could begin" if held else ""


def _not_begun(record: ComparisonRecord) -> list[str]:
    """Return the cells that did not begin; seeds and processes of which none began are named once."""
    begun = {one.cell.group for one in record.cells}
    names = (one.name if one.group in begun else f"all at {one.group}" for one in record.held_back)
    return list(dict.fromkeys(names))


def _listed(names: Sequence[str], separator: str = ", ") -> str:
    """Return the names in one text; of many, the first ones and the number of the others."""
    if len(names) <= _MOST:
        return separator.join(names)
    return f"{separator.join(names[:_MOST])} and {len(names) - _MOST} others"
