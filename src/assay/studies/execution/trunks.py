"""Cells that branch from another one: they follow it in one wave, and begin with its checkpoint.

A wave without times runs its cells one after the other. So a trunk and its branches are a wave, which an executor may
run anywhere, and no wave waits for another.

A branch is the run that never branched. So one whose trunk has no such checkpoint, because it failed before or its
folder is gone, trains all of its steps itself.
"""

from collections.abc import Sequence
from functools import cached_property

from assay.config.home import Home
from assay.config.run import TrainingConfig
from assay.errors import UsageError
from assay.executors.base import Wave
from assay.launch.branch import branch_at
from assay.records.events import CellStartEvent
from assay.records.run import Branch
from assay.records.study import Cell
from assay.store.lookup import find
from assay.studies.folder import StudyFolder


def chains(cells: Sequence[Cell]) -> list[Wave]:
    """Return a wave of each cell, with the cells that branch from it after it."""
    found: dict[str, list[Cell]] = {cell.name: [cell] for cell in cells if cell.branch is None}
    for cell in cells:
        if cell.branch is not None:
            found.setdefault(cell.branch.cell, []).append(cell)
    return [tuple(wave) for wave in found.values()]


class Trunks:
    """The runs of the cells of a study, those of earlier processes included."""

    def __init__(self, home: Home, study: str) -> None:
        self._home, self._folder = home, StudyFolder(home.reports / study)
        self._begun: dict[str, str] = {}

    @cached_property
    def _earlier(self) -> dict[str, str]:
        """The newest run of each cell in the study's log."""
        return {one.cell: one.run for one in self._folder.events() if isinstance(one, CellStartEvent)}

    def begin(self, cell: Cell, run: str) -> None:
        """Note the run of a cell that begins here."""
        self._begun[cell.name] = run

    def branch(self, cell: Cell, training: TrainingConfig) -> Branch | None:
        """Return the run and the step from which a cell branches; None if it trains all of its steps itself."""
        trunk = (
            None if cell.branch is None else self._begun.get(cell.branch.cell) or self._earlier.get(cell.branch.cell)
        )
        if cell.branch is None or trunk is None:
            return None
        try:
            return branch_at(find(self._home, trunk), cell.branch.step, training)
        except UsageError:
            return None
