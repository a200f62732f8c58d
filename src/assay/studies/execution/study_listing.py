"""The state of studies: one line each for a list of all, and the details of one."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from assay.config.home import Home
from assay.errors import UsageError
from assay.records.study import CellResult, StudyEnding
from assay.studies.execution.fold import fold
from assay.studies.folder import StudyFolder, StudyPlan


class Listed(NamedTuple):
    """One study in the list of all."""

    id: str
    name: str
    """Name of its file, with the scale; empty for a comparison."""
    kind: str
    title: str
    """Preset or file of the base."""
    question: str
    status: str
    """`running`, an ending, or `stopped` if its process ended before it could write the record."""
    cells: int
    ended: int


class StudyStanding(NamedTuple):
    """The state of one study."""

    study: Listed
    by_status: Mapping[str, int]
    """Number of ended cells by the status of their runs."""
    process: str
    """Host and number of the process that runs the study; empty if none does."""
    problems: tuple[tuple[str, str, str], ...]
    """Cell, run and reason of each cell that did not end as it should."""


def list_study(folder: StudyFolder, home: Home) -> Listed:
    """Return a study for the list; one that cannot be read is damaged."""
    try:
        plan, record = folder.plan(), folder.record()
        if record is not None and (plan is None or record.ending is StudyEnding.COMPLETE):
            count = len(record.cells) + len(record.nudged)
            status = "running" if folder.running else record.ending.value
            return Listed(folder.id, record.name, record.kind, record.title, record.question, status, count, count)
        plan = read_plan(folder)
        ended = len(fold(plan, folder.events(), home).cells)
    except UsageError as error:
        return Listed(folder.id, "", "", "", str(error), "damaged", 0, 0)
    status = "running" if folder.running else "stopped" if record is None else record.ending.value
    return Listed(folder.id, plan.name, plan.kind, plan.title, plan.question, status, len(plan.cells), ended)


def study_state(folder: StudyFolder, home: Home) -> StudyStanding:
    """Return the state of a study. Raises `UsageError` if it has no plan."""
    ended = _ended(folder, home)
    holder = folder.holder()
    return StudyStanding(
        study=list_study(folder, home),
        by_status=Counter(one.result.status.value for one in ended),
        process="" if holder is None else f"{holder.pid} on {holder.host}",
        problems=tuple(_problem(one) for one in ended if not one.result.status.finished),
    )


def _ended(folder: StudyFolder, home: Home) -> list[CellResult]:
    """Return the cells of a complete study, those that were killed among them, or those that have ended so far."""
    plan, record = read_plan(folder), folder.record()
    if record is not None and record.ending is StudyEnding.COMPLETE and not folder.running:
        return [*record.cells, *record.nudged]
    return fold(plan, folder.events(), home).cells


def read_plan(folder: StudyFolder) -> StudyPlan:
    """Return the plan of a study. Raises `UsageError` if an earlier version wrote it, without a plan."""
    plan = folder.plan()
    if plan is None:
        raise UsageError(f"the study {folder.id} was written by an earlier version, without a plan; run it again")
    return plan


def _problem(one: CellResult) -> tuple[str, str, str]:
    status = one.result.status.value.replace("_", " ")
    return one.cell.name, one.result.run, f"{status}: {one.result.reason}" if one.result.reason else status
