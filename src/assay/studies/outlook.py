"""A study before it runs: every row with its predicted memory and time, and rows that cannot run with the reason.

Nothing is trained. Predictions are those that the runs themselves will record. The time of a row is that of its start,
its steps and its evaluations; a forward pass takes a third of a step. Blocks that are repeated because the machine was
disturbed come on top.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from assay.config.home import Home
from assay.config.run import Run
from assay.data.progress import Progress
from assay.data.published import NotDownloaded
from assay.errors import UsageError
from assay.hardware import detect
from assay.launch.prepare import ReadyRun, ready
from assay.optimizations import Unavailable
from assay.records.prediction import Predicted
from assay.records.study import AGAIN, BASELINE
from assay.studies.base import Study
from assay.studies.constant import sentence
from assay.studies.design import Treatment, cross_cells
from assay.studies.drift import nudged_copies
from assay.studies.execution.deadline import process_seconds
from assay.studies.execution.ready import with_step_times


class RowOutlook(NamedTuple):
    """One row before it runs."""

    label: str
    levels: Mapping[str, str]
    processes: int
    """Processes over all seeds; the control has twice as many."""
    peak_bytes: int | None = None
    """Predicted peak of tensors; None if the row cannot run or cannot be predicted."""
    step_seconds: float | None = None
    """None if the rates of this machine are not known."""
    seconds: float | None = None
    """Predicted time of one process."""
    problem: str | None = None
    """Why the row cannot run."""
    unavailable: bool = False
    """True if only this machine cannot run it."""
    share: float = 1.0
    """Share of the rows of its rung that will run, in a search by successive halving."""


class CellOutlook(NamedTuple):
    """One cell before it runs: a row at a seed, in one process."""

    name: str
    seed: int
    process: int
    """Index among the processes of the row at this seed."""
    peak_bytes: int | None
    seconds: float | None
    share: float


class Outlook(NamedTuple):
    """A whole study before it runs."""

    name: str
    kind: str
    question: str
    base: str
    seeds: int
    rows: tuple[RowOutlook, ...]
    notes: tuple[str, ...]
    """Sentences of the design on what it can tell."""
    drifts: int
    """Further runs of the control, whose nudged weights show by how much losses drift apart (`studies.drift`)."""
    at_seeds: tuple[int, ...] = ()
    """Seeds of every row."""
    timed: bool = True
    """False if the study measures no times, and none are predicted."""

    def cells(self) -> tuple[CellOutlook, ...]:
        """Return every cell that can run, in the order of the design: the control twice, then the other rows."""
        control = self.rows[0]
        rows = [control, control._replace(label=AGAIN), *(row for row in self.rows[1:] if row.problem is None)]
        each = control.processes // (2 * self.seeds)
        return tuple(
            CellOutlook(row.label, seed, process, row.peak_bytes, row.seconds, row.share)
            for seed in self.at_seeds
            for process in range(each)
            for row in rows
        )

    def plain(self, *, cells: bool) -> dict[str, Any]:
        """Return the plan as plain values for JSON, with every cell if `cells`."""
        rows = [row._asdict() for row in self.rows]
        listed = {"cells": [one._asdict() for one in self.cells()]} if cells else {}
        return {**self._asdict(), "rows": rows, "processes": self.processes, "seconds": self.seconds, **listed}

    @property
    def processes(self) -> int:
        """Number of processes of all rows that can run."""
        return self.drifts + round(sum(row.share * row.processes for row in self.rows if row.problem is None))

    @property
    def seconds(self) -> float | None:
        """Predicted time of all processes, one working at a time; None if that of a row is not known."""
        able = [row for row in self.rows if row.problem is None]
        times = [row.seconds for row in able]
        if None in times:
            return None
        once = self.drifts * (able[0].seconds or 0.0)
        return once + sum(row.share * row.processes * (row.seconds or 0.0) for row in able)


def outlook(
    study: Study, base: Run, home: Home, prepare: Progress, *, calibrate: bool = False, timed: bool = True
) -> Outlook:
    """Predict every row of a study; `calibrate` first times steps of few blocks for those that can run.

    Of a study that is not `timed` no time is predicted. Raises `UsageError` for a fault of the design, and if the
    control cannot run.
    """
    rows, able, seen = _checked(study, base, home, prepare)
    if calibrate and timed:
        able = with_step_times(able, home, prepare)
    rows = [_predicted(row, able[row.label], timed=timed) if row.label in able else row for row in rows]
    control = [row._replace(label=BASELINE, processes=2 * row.processes) for row in rows[:1]]
    cells = cross_cells(seen, study.seeds_from(base.seed), 1)
    drifts = len(nudged_copies(cells, accelerated=detect().device(base.device) == "cuda"))
    return Outlook(
        name=study.name,
        kind=study.kind,
        question=study.question,
        base=study.base,
        seeds=study.seeds,
        rows=(*control, *rows[1:]),
        notes=_notes(study, seen),
        drifts=drifts,
        at_seeds=study.seeds_from(base.seed),
        timed=timed,
    )


def _checked(
    study: Study, base: Run, home: Home, prepare: Progress
) -> tuple[list[RowOutlook], dict[str, ReadyRun], list[Treatment]]:
    """Return every row, the runs that can start by their labels, and the rows of the design.

    Raises `UsageError` for a fault of the design, and if the control cannot run.
    """
    each = study.seeds * study.processes_at_each_seed
    rows: list[RowOutlook] = []
    able: dict[str, ReadyRun] = {}
    factors, seen, halving = study.by_key(), list[Treatment](), study.halving()
    for levels in study.combinations():
        label = study.label(levels)
        empty = RowOutlook(label, levels, each, share=1.0 if halving is None else halving.share(label))
        try:
            row = study.row(base, levels, factors, seen)
            seen.append(row)
            able[label] = ready(row.run.asked(), home, prepare)
            rows.append(empty)
        except UsageError as reason:
            if isinstance(reason, NotDownloaded):
                raise
            if not rows:
                raise UsageError(f"the control cannot run: {reason}") from reason
            rows.append(empty._replace(problem=str(reason), unavailable=isinstance(reason, Unavailable)))
    if len(rows) < 2:
        raise UsageError(f"the study {study.kind!r} has nothing to compare with its control; add levels")
    return rows, able, seen


def _notes(study: Study, seen: Sequence[Treatment]) -> tuple[str, ...]:
    """Return sentences on what the design can tell."""
    started = (study.started_from,) if study.started_from else ()
    held = () if study.constant is None else (sentence(study.constant, {row.label: row.run for row in seen}),)
    return (*started, *study.notes(), *study.idle(), *held)


def _predicted(row: RowOutlook, able: ReadyRun, *, timed: bool) -> RowOutlook:
    predicted = able.predicted or Predicted()
    step = predicted.step_seconds if timed else None
    time = None if step is None else process_seconds(able.run, step, able.eval_batches)
    return row._replace(peak_bytes=predicted.tensors_peak_bytes, step_seconds=step, seconds=time)
