"""Work that decay branches saved against separate runs: as planned before the study, and as its trunks took it.

A branch begins with steps that its trunk has done. A separate run would do them again. The plan counts these steps and
their FLOPs, and predicts their time if it knows the time of a step. Measured is the time that the trunk took for them,
of those branches that did begin with a checkpoint. It is time of processes: beside each other they take less of a day.
Writing and reading the checkpoints is not counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.records.study import AGAIN, BASELINE, CellResult, ComparisonRecord
from assay.studies.isoflop_sizes import Count, flops_of
from assay.studies.kinds.isoflop import COUNT


@dataclass(frozen=True)
class SharedWork:
    """Work of first steps that branches did not repeat."""

    runs: int
    steps: int
    flops: float
    seconds: float | None
    """Time of processes; None if that of a step is not known."""


@dataclass(frozen=True)
class BranchSaving:
    """Saving of the branches of a study, and the FLOPs of all its runs as separate ones."""

    planned: SharedWork
    measured: SharedWork
    separate_flops: float
    apart: float | None
    """Largest difference of the control's loss as a branch and as a whole run, in nats; None if no seed has both."""

    @property
    def share(self) -> float:
        """Saved FLOPs over those of separate runs."""
        return self.measured.flops / self.separate_flops


def branch_saving(record: ComparisonRecord) -> BranchSaving | None:
    """Return what the branches of a study saved; None if it has none."""
    branched = [one for one in record.cells if one.cell.branch is not None]
    if not branched:
        return None
    took = {one.cell.name: one.curve.step_seconds for one in record.cells}
    begun = [one for one in branched if one.result.provenance.branch is not None]
    return BranchSaving(
        planned=_work(branched, [None if one.cell.branch is None else one.cell.branch.seconds for one in branched]),
        measured=_work(begun, [_measured(one, took) for one in begun]),
        separate_flops=sum(flops_of(one.cell.run, _count(one)) for one in record.cells),
        apart=_apart(record),
    )


def _apart(record: ComparisonRecord) -> float | None:
    """Return how far the control's second runs, which train all of their steps, are from its branches."""
    whole = {one.cell.group: one.result.loss.val_loss for one in record.of(AGAIN)}
    pairs = [
        (one.result.loss.val_loss, whole.get(one.cell.group))
        for one in record.of(BASELINE)
        if one.result.provenance.branch
    ]
    return max((abs(one - other) for one, other in pairs if one is not None and other is not None), default=None)


def _measured(one: CellResult, took: dict[str, tuple[float, ...]]) -> float | None:
    """Return the seconds of a trunk's steps before a branch; None if they were not kept."""
    if one.cell.branch is None:
        return None
    steps = took.get(one.cell.branch.cell, ())[: one.cell.branch.step]
    return sum(steps) if len(steps) == one.cell.branch.step else None


def _work(cells: Sequence[CellResult], seconds: Sequence[float | None]) -> SharedWork:
    shared = [(one, one.cell.branch.step) for one in cells if one.cell.branch is not None]
    known = [one for one in seconds if one is not None]
    return SharedWork(
        runs=len(shared),
        steps=sum(step for _, step in shared),
        flops=sum(flops_of(one.cell.run, _count(one)) * step / one.cell.run.training.steps for one, step in shared),
        seconds=sum(known) if len(known) == len(seconds) else None,
    )


def _count(one: CellResult) -> Count:
    return "non_embedding" if one.cell.levels.get(COUNT) == "non_embedding" else "total"
