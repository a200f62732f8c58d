"""Run a study, or the missing cells of one: check everything, write the plan, let an executor run the waves.

Every item of news is written to the study's event log before a listener receives it. So another process can follow the
study, and after a crash of this one the cells that had ended are known.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from assay.config.home import Home
from assay.config.run import Run
from assay.data.progress import Progress as Prepare
from assay.errors import UsageError, shown
from assay.executors import executor
from assay.executors.base import Conducted, Ended, Listener, News, Planned, RunningCell, Wave
from assay.hardware import Machine, detect
from assay.launch.prepare import ReadyRun, leaving_nothing, ready, threads_of
from assay.launch.rates import measured_machine
from assay.launch.spawn import start
from assay.optimizations import check, resolved
from assay.records.study import AGAIN, BASELINE, Cell, ComparisonRecord, Protocol, Stated
from assay.studies.drift import NUDGED, nudged
from assay.studies.fold import Progress, fold, record_of
from assay.studies.folder import StudyFolder, StudyPlan, new_id
from assay.studies.news import to_event
from assay.studies.plan import Needs, waves


@dataclass(frozen=True)
class How:
    """Settings of a study's execution, apart from its cells."""

    home: Home
    blocks: int
    """Timed blocks of every cell."""
    timeout: float | None
    """Largest number of seconds that a cell may work."""
    title: str
    """Preset or file of the base."""
    prepare: Prepare
    """Receives the progress of preparations."""
    tell: Listener
    """Receives the news."""
    executor: str = "local"
    kind: str = "comparison"
    stated: Stated = field(default_factory=Stated)

    def check(self) -> None:
        """Raise `UsageError` for an impossible number of blocks or seconds."""
        if self.blocks < 1:
            raise UsageError(f"--blocks {self.blocks} is not possible; a cell needs at least one timed block")
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"--timeout {self.timeout:g} is not possible; give a positive number of seconds")


def measured(cells: Sequence[Cell], base: Run, how: How) -> ComparisonRecord:
    """Measure the cells of a design, and save the record.

    Raises `UsageError` for a fault of any cell before one is run, and `StorageError` if the disk refuses.
    """
    how.check()
    runs_waves = executor(how.executor)
    machine = detect()
    cells, prepared = _ready(cells, machine, how.home, how.prepare)
    together = (cell for cell in cells if (cell.seed, cell.process) == (base.seed, 0))
    needs = Needs((prepared[cell.name] for cell in together), machine)
    drifts = nudged(cells, accelerated=machine.device(base.device) == "cuda")
    plan = StudyPlan(
        id=new_id(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        kind=how.kind,
        title=how.title,
        **how.stated.stated(),
        base=resolved(base),
        seeds=tuple(dict.fromkeys(cell.seed for cell in cells)),
        treatments=tuple(dict.fromkeys(cell.treatment for cell in cells if cell.treatment not in (BASELINE, AGAIN))),
        protocol=_protocol(how.blocks, len({cell.process for cell in cells}), needs),
        timeout=how.timeout,
        waves=(*waves(cells, needs.resident()), *((one,) for one in drifts)),
        executor=runs_waves.name,
    )
    folder = StudyFolder(how.home.reports / plan.id)
    with folder.locked():
        folder.write_plan(plan)
        folder.append({"event": "plan"})
        return _executed(folder, plan, Progress(), list(enumerate(plan.waves)), prepared, how)


def resumed(folder: StudyFolder, home: Home, prepare: Prepare, tell: Listener) -> ComparisonRecord:
    """Run exactly the cells of a study that have no result, and save the record.

    Raises `UsageError` if another process runs the study, if it is an old comparison without a plan, or if a cell
    cannot run any more. Raises `StorageError` if the disk refuses.
    """
    plan = folder.plan()
    if plan is None:
        raise UsageError(f"the study {folder.id} was written by an earlier version, without a plan; run it again")
    how = How(home, plan.protocol.blocks, plan.timeout, plan.title, prepare, tell, plan.executor)
    with folder.locked():
        done = fold(plan, folder.events(), home)
        missing = done.missing(plan)
        cells = [cell for _, wave in missing for cell in wave if cell.treatment != NUDGED]
        prepared = _ready(cells or plan.cells[:1], detect(), home, prepare)[1]
        return _executed(folder, plan, done, missing, prepared, how)


def _executed(
    folder: StudyFolder,
    plan: StudyPlan,
    done: Progress,
    missing: Sequence[tuple[int, Wave]],
    prepared: dict[str, ReadyRun],
    how: How,
) -> ComparisonRecord:
    """Run the missing waves, and write the record."""
    any_cell = next(iter(prepared.values()))

    def begin(cell: Cell) -> AbstractContextManager[RunningCell]:
        known = prepared.get(cell.name) or prepared.get(cell.repeated(0).name)
        if known is None or cell.treatment == NUDGED:
            known = replace(any_cell, run=cell.run, predicted=None)
        named = replace(known, preset=Path(plan.title).name)
        return start(named, how.home, turns=None if cell.treatment == NUDGED else how.blocks, timeout=how.timeout)

    def tell(news: News) -> None:
        event = to_event(news)
        if event is not None:
            folder.append(event)
        how.tell(news)

    how.tell(Planned(plan.waves, plan.protocol.blocks))
    for one in done.cells:
        how.tell(Ended(one.cell, one.result, one.wave))
    runs_waves = executor(plan.executor if missing else "local")  # a complete study needs no executor of the user's
    ran: object = runs_waves.run(missing, begin, how.blocks, tell)
    if not isinstance(ran, Conducted):
        raise UsageError(f"the executor {plan.executor!r} returned {shown(ran)}; its method run must return Conducted")
    folder.append({"event": "over", "ending": ran.ending.value})
    record = record_of(plan, Progress([*done.cells, *ran.cells], [*done.rounds, *ran.rounds]), ran.ending)
    folder.write_record(record)
    return record


def _protocol(blocks: int, processes: int, needs: Needs) -> Protocol:
    resident = needs.resident()
    note = needs.note(resident)
    return Protocol(
        blocks=blocks,
        processes=processes,
        resident=resident,
        needed_bytes=sum(needs.host) if needs.known else None,
        available_bytes=needs.available_bytes,
        notes=(note,) if note else (),
    )


def _ready(
    cells: Sequence[Cell], machine: Machine, home: Home, prepare: Prepare
) -> tuple[list[Cell], dict[str, ReadyRun]]:
    """Check and prepare each treatment once, because its seeds cannot differ in validity; returns complete cells."""
    for cell in cells:
        # All cells are checked before the first is prepared, because preparing writes the corpus.
        check(cell.run, machine)
    # Step times are predicted from the machine's rates, which are measured once and then cached.
    for threads in dict.fromkeys(threads_of(cell.run) for cell in cells):
        measured_machine(home, threads, tell=lambda text: prepare(text, None))
    checked: dict[str, ReadyRun] = {}
    complete: list[Cell] = []
    found: dict[str, ReadyRun] = {}
    with leaving_nothing(cells[0].run, home):
        for cell in cells:
            if cell.treatment not in checked:
                checked[cell.treatment] = ready(cell.run.asked(), home, prepare)
    for cell in cells:
        known = checked[cell.treatment]
        run = known.run.model_copy(update={"seed": cell.seed})
        complete.append(cell.model_copy(update={"run": run}))
        found[cell.name] = replace(known, run=run)
    return complete, found
