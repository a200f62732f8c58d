"""Run a study, or the missing cells of one: check everything, write the plan, let an executor run the waves.

Every item of news is written to the study's event log before a listener receives it. So another process can follow the
study, and after a crash of this one the cells that had ended are known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf

from assay.config.home import Home
from assay.config.run import DataConfig, Run
from assay.data.progress import Progress as Prepare
from assay.errors import UsageError, short_text
from assay.executors import executor
from assay.executors.base import Conducted, Ended, Listener, News, Planned, Wave, Work
from assay.executors.local import Local
from assay.executors.news import to_event
from assay.hardware import detect
from assay.launch.prepare import ReadyRun
from assay.launch.trial import try_own
from assay.optimizations import resolve_run
from assay.records.study import AGAIN, BASELINE, Cell, ComparisonRecord, Halving, Protocol, Stated, StudyEnding
from assay.studies.drift import NUDGED, nudged_copies
from assay.studies.execution.deadline import Deadline, with_rest
from assay.studies.execution.fold import Mode, Progress, cells_to_keep, elsewhere, fold, gather_waves, record_of
from assay.studies.execution.order import due, in_order, known_rows, shuffle_rows, waves_in_order
from assay.studies.execution.ready import (
    Servers,
    chains,
    predicted_seconds,
    ready_cells,
    side_by_side,
    single_threaded,
    starter,
    with_step_times,
)
from assay.studies.execution.study_listing import read_plan
from assay.studies.folder import StudyFolder, StudyPlan, new_id
from assay.studies.kinds.fractional import Fractional
from assay.studies.plan import Needs, waves

_MOST_BLOCKS = 10_000
_NOT_TIMED = "Runs went beside each other, with one thread each, so their times are not compared."


@dataclass(frozen=True)
class Execution:
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
    timed: bool = True
    """False: only losses and memory are measured, and cells run beside each other with one thread each."""
    hours: float | None = None
    """No cell begins that would probably end later than this."""
    notes: tuple[str, ...] = ()
    """Sentences on each deviation from the design."""
    halving: Halving | None = None
    """Rungs of rows whose results decide which rows run next."""

    def check(self) -> None:
        """Raise `UsageError` for an impossible number of blocks or seconds."""
        if self.blocks < 1:
            raise UsageError(f"--blocks {self.blocks} is not possible; a run needs at least one timed block")
        if self.blocks > _MOST_BLOCKS:
            raise UsageError(f"--blocks {self.blocks} is too many; a run has at most {_MOST_BLOCKS} timed blocks")
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"--timeout {self.timeout:g} is not possible; give a positive number of seconds")
        if self.hours is not None and not 0 < self.hours < inf:
            raise UsageError(f"--max-hours {self.hours:g} is not possible; give a positive number of hours")


def measure_design(cells: Sequence[Cell], base: Run, how: Execution) -> ComparisonRecord:
    """Measure the cells of a design, and save the record.

    Raises `UsageError` for a fault of any cell, or of an extension, before one is run, and `StorageError` if the disk
    refuses.
    """
    how.check()
    runs_waves = executor(how.executor)
    runs_waves.check()
    machine = detect()
    asked = cells if how.timed else single_threaded(cells)
    cells, prepared = ready_cells(asked, machine, how.home, how.prepare, timed=how.timed)
    if runs_waves.name == Local.name:
        try_own(prepared.values(), how.home, how.prepare)
    if how.timed and runs_waves.name == Local.name:
        prepared = with_step_times(prepared, how.home, how.prepare)
    together = (cell for cell in cells if (cell.seed, cell.process) == (cells[0].seed, 0))
    needs = Needs((prepared[cell.name] for cell in together), machine)
    drifts = nudged_copies(cells, accelerated=machine.device(base.device) == "cuda")
    plan = StudyPlan(
        id=new_id(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        kind=how.kind,
        title=how.title,
        **how.stated.stated(),
        base=resolve_run(base),
        seeds=tuple(dict.fromkeys(cell.seed for cell in cells)),
        treatments=tuple(dict.fromkeys(cell.treatment for cell in cells if cell.treatment not in (BASELINE, AGAIN))),
        protocol=_protocol(how, len({cell.process for cell in cells}), needs),
        timeout=how.timeout,
        waves=(*_waves(cells, needs, how), *((one,) for one in drifts)),
        executor=runs_waves.name,
        halving=how.halving,
    )
    folder, deadline = StudyFolder(how.home.reports / plan.id), _deadline(plan, Progress(), prepared, how)
    with folder.locked():
        folder.write_plan(plan)
        folder.append({"event": "plan"})
        return _executed(folder, plan, Progress(), prepared, how, deadline)


def _waves(cells: Sequence[Cell], needs: Needs, how: Execution) -> list[Wave]:
    """Return the waves of a study. Without times a drift of the machine is no row's, so rows keep their order."""
    if not how.timed:
        return chains(cells if how.hours is None else in_order(cells, how.kind))
    return waves(shuffle_rows(cells) if how.hours is None else in_order(cells, how.kind), needs.resident())


def resume_study(folder: StudyFolder, how: Execution, mode: Mode = Mode.MISSING) -> ComparisonRecord:
    """Run the cells of a study that a mode names, by default exactly those that have no result, and save the record.

    Of `how`, the home, the listeners and the hours count; the plan has the rest. Raises `UsageError` if another process
    runs the study, if it is an old comparison without a plan, or if a cell cannot run any more. Raises `StorageError`
    if the disk refuses.
    """
    plan = read_plan(folder)
    how.check()
    with folder.locked():
        gather_waves(folder)
        done = _kept(fold(plan, folder.events(), how.home), mode, how)
        cells = [cell for _, wave in done.missing(plan) for cell in wave if cell.treatment != NUDGED]
        left = cells or plan.cells[:1]
        prepared = ready_cells(left, detect(), how.home, how.prepare, timed=plan.protocol.blocks > 0)[1]
        return _executed(folder, plan, done, prepared, how, _deadline(plan, done, prepared, how))


def _kept(done: Progress, mode: Mode, how: Execution) -> Progress:
    """Return the finished cells that count, and say why others run again."""
    from assay.data import folder_for, prepare

    digests: dict[str, str] = {}

    def digest(config: DataConfig) -> str:
        name = folder_for(config, how.home).name
        if name not in digests:
            digests[name] = prepare(config, how.home, how.prepare).digest
        return digests[name]

    found = cells_to_keep(done.cells, mode)
    for differs, cells in elsewhere(found, detect(), digest).items():
        how.prepare(f"{len(cells)} finished runs have another {differs} and run again", None)
        found = [one for one in found if one not in cells]
    return Progress(found, [one for one in done.rounds if one.wave in {cell.wave for cell in found}], done.waves)


def _deadline(plan: StudyPlan, done: Progress, prepared: dict[str, ReadyRun], how: Execution) -> Deadline:
    """Return the limit of time. Raises `UsageError` if it would not hold even the first cells."""
    beside = 1 if plan.protocol.blocks else side_by_side(prepared.values())
    whole = plan.kind == Fractional.kind
    found = Deadline(how.hours, predicted_seconds(prepared), whole=whole, beside=beside)
    if waves := _due(plan, done, how):
        found.check(waves)
    return found


def _due(plan: StudyPlan, done: Progress, how: Execution) -> list[tuple[int, Wave]]:
    """Return the waves that can run now, under a limit of time in the order in which they are needed."""
    waves = due(plan, done)
    return waves if how.hours is None else waves_in_order(waves, plan.cells, plan.treatments, plan.kind)


def _executed(
    folder: StudyFolder,
    plan: StudyPlan,
    done: Progress,
    prepared: dict[str, ReadyRun],
    how: Execution,
    deadline: Deadline,
) -> ComparisonRecord:
    """Run the waves that have no result, and write the record."""
    slots = side_by_side(prepared.values())

    def tell(news: News) -> None:
        deadline.hear(news)
        event = to_event(news)
        if event is not None:
            folder.append(event)
        how.tell(news)

    how.tell(Planned(plan.waves, plan.protocol.blocks, plan.id, _expected(plan, done, deadline)))
    for one in done.cells:
        how.tell(Ended(one.cell, one.result, one.wave))
    ending = StudyEnding.COMPLETE
    with Servers(prepared.values(), how.home, timed=plan.protocol.blocks > 0) as servers:
        begin = starter(plan, prepared, how.home, servers)
        while (waves := _due(plan, done, how)) and ending is StudyEnding.COMPLETE:
            _tell_rung(folder, plan, done, how)
            work = Work(deadline.before(waves), begin, plan.protocol.blocks, tell, how.home, folder.path, slots)
            ran = _run(plan.executor, work)
            done = Progress([*done.cells, *ran.cells], [*done.rounds, *ran.rounds], done.waves)
            late = deadline.reached and ran.ending is StudyEnding.COMPLETE
            ending = StudyEnding.BUDGET_REACHED if late else ran.ending
            if plan.halving is None or not ran.cells:
                break
    if deadline.cut:
        plan = with_rest(plan, deadline.cut)
        folder.write_plan(plan)
    folder.append({"event": "over", "ending": ending.value})
    record = record_of(plan, done, ending, _held_back(plan, done, ending))
    folder.write_record(record)
    return record


def _expected(plan: StudyPlan, done: Progress, deadline: Deadline) -> float | None:
    """Return the seconds of all that has no result; None if rungs or other machines decide them."""
    here = plan.executor == Local.name and plan.halving is None
    return deadline.expected(due(plan, done)) if here else None


def _held_back(plan: StudyPlan, done: Progress, ending: StudyEnding) -> list[Cell]:
    """Return the cells that a limit of time did not let begin."""
    return [cell for _, wave in due(plan, done) for cell in wave] if ending is StudyEnding.BUDGET_REACHED else []


def _tell_rung(folder: StudyFolder, plan: StudyPlan, done: Progress, how: Execution) -> None:
    """Say which rows of a search run, now that the results of a rung have decided it."""
    if plan.halving is not None:
        rows = known_rows(plan, done.cells)
        folder.append({"event": "rung", "rows": sorted(rows)})
        begun = tuple(wave for wave in plan.waves if wave[0].treatment in rows)
        how.tell(Planned(begun, plan.protocol.blocks, plan.id))


def _run(name: str, work: Work) -> Conducted:
    ran: object = executor(name).run(work)
    if not isinstance(ran, Conducted):
        raise UsageError(f"the executor {name!r} returned {short_text(ran)}; its method run must return Conducted")
    return ran


def _protocol(how: Execution, processes: int, needs: Needs) -> Protocol:
    resident = needs.resident() if how.timed else 1
    note = needs.note(resident) if how.timed else _NOT_TIMED
    return Protocol(
        blocks=how.blocks if how.timed else 0,
        processes=processes,
        resident=resident,
        needed_bytes=sum(needs.host) if needs.known else None,
        available_bytes=needs.available_bytes,
        notes=(*how.notes, *((note,) if note else ())),
    )
