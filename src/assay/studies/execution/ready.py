"""Cells that can start: each is checked and prepared before the first one runs.

A process that runs one wave on another machine prepares its cells in the same way (`studies.execution.wave`).

A cell may branch from another one. Then it follows it in one wave, and begins with its checkpoint. A wave without times
runs its cells one after the other. So a trunk and its branches are a wave, which an executor may run anywhere, and no
wave waits for another.

A branch is the run that never branched. So one whose trunk has no such checkpoint, because it failed before or its
folder is gone, trains all of its steps itself.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Self

from assay.config.home import Home
from assay.config.run import ResolvedRun, TrainingConfig, identity
from assay.data import list_corpus
from assay.data.progress import Progress as Prepare
from assay.errors import UsageError
from assay.estimator.timing.step_time import serving_times as times_of
from assay.executors.base import RunningCell, Start, Wave
from assay.hardware import Machine, detect
from assay.hardware.rates import known_machine
from assay.launch.forked import ForkServer
from assay.launch.prepare import ReadyRun, leaving_nothing, predict, ready, threads_of
from assay.launch.rates import measured_machine
from assay.launch.resume import branch_at
from assay.launch.spawn import fork_server, start
from assay.launch.step_times import calibrate
from assay.optimizations import check
from assay.platforms import CAN_FORK_WITH_THREADS
from assay.records.events import CellStartEvent
from assay.records.prediction import Predicted
from assay.records.run import Branch
from assay.records.study import BASELINE, Cell
from assay.store.lookup import find
from assay.studies.drift import NUDGED
from assay.studies.execution.deadline import process_seconds
from assay.studies.folder import StudyFolder, StudyPlan
from assay.studies.plan import Needs


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


CALIBRATION_SECONDS = 60.0
"""Time in which steps of few blocks are timed before a study; what is left is predicted by a roofline."""


def ready_cells(
    cells: Sequence[Cell], machine: Machine, home: Home, prepare: Prepare, *, timed: bool
) -> tuple[list[Cell], dict[str, ReadyRun]]:
    """Check and prepare each treatment once, because its seeds cannot differ in validity; returns complete cells.

    Cells that are not `timed` neither wait for the machine's rates nor have predicted times.
    """
    for cell in cells:
        # All cells are checked before the first is prepared, because preparing writes the corpus.
        check(cell.run, machine)
    checked: dict[str, ReadyRun] = {}
    with leaving_nothing(cells[0].run, home):
        list_corpus(cells[0].run.data, home.ready(), prepare)  # a missing text is said before rates are measured
        # Step times are predicted from the machine's rates, which are measured once and then cached.
        for threads in dict.fromkeys(threads_of(cell.run) for cell in cells if timed):
            measured_machine(home, threads, tell=lambda text: prepare(text, None))
        for cell in cells:
            if cell.treatment not in checked:
                known = ready(cell.run.asked(), home, prepare)
                checked[cell.treatment] = known if timed else _without_times(known)
    complete: list[Cell] = []
    found: dict[str, ReadyRun] = {}
    for cell in cells:
        known = checked[cell.treatment]
        run = known.run.model_copy(update={"seed": cell.seed})
        complete.append(cell.model_copy(update={"run": run}))
        found[cell.name] = replace(known, run=run)
    return complete, found


def _without_times(known: ReadyRun) -> ReadyRun:
    said = known.predicted
    if said is None:
        return known
    fields = ("step_seconds", "step_seconds_margin", "under_load", "roofline_factor", "roofline_seconds")
    untimed = {name: Predicted.model_fields[name].default for name in fields}
    return replace(known, predicted=said.model_copy(update=untimed))


def with_step_times(prepared: Mapping[str, ReadyRun], home: Home, prepare: Prepare) -> dict[str, ReadyRun]:
    """Time steps of few blocks for every stack, and predict the cells from them."""
    by_threads: dict[int | None, list[ResolvedRun]] = {}
    for one in prepared.values():
        by_threads.setdefault(threads_of(one.run), []).append(one.run)
    for threads, runs in by_threads.items():
        calibrate(runs, home, threads, CALIBRATION_SECONDS, prepare)
    machines = {threads: known_machine(home, threads) for threads in by_threads}
    predictions: dict[str, Predicted | None] = {}
    found: dict[str, ReadyRun] = {}
    for name, one in prepared.items():
        machine, alike = machines[threads_of(one.run)], identity(one.run.model_copy(update={"seed": 0}))
        if alike not in predictions:
            predictions[alike] = one.predicted if times_of(one.run, machine) is None else predict(one.run, machine)
        found[name] = replace(one, predicted=predictions[alike])
    return found


class Servers:
    """Context of the servers that fork the cells of a study; a cell without one starts by itself.

    Cells without times have one server. Timed cells on an accelerator have one for each wave of rows. The forks of one
    server share the layout of their addresses, which has a part in their times. On a CPU a timed cell starts by itself,
    because its process's memory and time are measured. Every cell does so off Linux.
    """

    def __init__(self, prepared: Collection[ReadyRun], home: Home, *, timed: bool) -> None:
        machine = detect()
        on_cpu = any(machine.device(one.run.device) == "cpu" for one in prepared)
        self._timed, self._home = timed, home
        self._forks = CAN_FORK_WITH_THREADS and not (on_cpu and timed)
        self._open, self._lock = ExitStack(), Lock()
        self._server: ForkServer | None = None
        self._wave: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def of(self, cell: Cell) -> ForkServer | None:
        """Return the server of a cell; that of another wave ends, and its cells live on."""
        wave = cell.group if self._timed else ""
        with self._lock:
            if self._forks and wave != self._wave:
                self._open.close()
                self._server, self._wave = self._open.enter_context(fork_server(self._home)), wave
            return self._server


def starter(plan: StudyPlan, prepared: dict[str, ReadyRun], home: Home, servers: Servers | None = None) -> Start:
    """Return the function that starts a cell of a study in a process of its own, forked from a server if possible."""
    any_cell, trunks = next(iter(prepared.values())), Trunks(home, plan.id)

    def begin(cell: Cell) -> AbstractContextManager[RunningCell]:
        known = prepared.get(cell.name) or prepared.get(cell.repeated(0).name)
        if known is None or cell.treatment == NUDGED:
            known = replace(any_cell, run=cell.run, predicted=None)
        turns = 0 if cell.treatment == NUDGED else plan.protocol.blocks
        branch = trunks.branch(cell, known.run.training)
        known = replace(known, preset=Path(plan.title).name, branch=branch)
        server = None if servers is None else servers.of(cell)
        child = start(known, home, turns=turns, timeout=plan.timeout, server=server)
        trunks.begin(cell, child.folder.id)
        return child

    return begin


def predicted_seconds(prepared: Mapping[str, ReadyRun]) -> Callable[[Cell], float | None]:
    """Return the function that predicts the seconds of a cell; None if they are not known.

    A nudged control is predicted as the control of its seed.
    """

    def predicted(cell: Cell) -> float | None:
        control = f"{BASELINE}, {cell.group}" if cell.treatment == NUDGED else cell.repeated(0).name
        known = prepared.get(cell.name) or prepared.get(control)
        step = known.predicted.step_seconds if known is not None and known.predicted is not None else None
        done = 0 if cell.branch is None else cell.branch.step
        return None if known is None or step is None else process_seconds(known.run, step, known.eval_batches, done)

    return predicted


def single_threaded(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with one thread each, so that a cell's losses do not depend on its neighbours."""
    return [cell.model_copy(update={"run": cell.run.model_copy(update={"threads": 1})}) for cell in cells]


def side_by_side(prepared: Collection[ReadyRun]) -> int:
    """Return how many cells can run beside each other: one for each core, as far as memory permits."""
    machine = detect()
    ranks = max(one.run.ranks for one in prepared)
    return max(1, min(machine.cores // ranks, Needs(prepared, machine).resident()))
