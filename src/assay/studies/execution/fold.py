"""The state of a study, from its event log and the folders of its runs.

The log names the run of each cell before the run works. So a cell whose run has ended counts, even if the process that
ran the study was killed before it could write that down. Runs that were killed or stopped do not count: their cells are
missing, and a resumed study runs them again.

A job of Slurm outlives its coordinator, which then did not copy the news of its waves into the study's log. Before a
study is resumed, no such job may still run, and what the others did is added to the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.config.home import Home
from assay.errors import UsageError
from assay.executors.base import Wave
from assay.executors.elsewhere import WaveFiles
from assay.executors.ended import cell_result
from assay.records.events import CellEndEvent, CellStartEvent, LogEvent, RoundEvent
from assay.records.status import Status
from assay.records.study import Cell, CellResult, ComparisonRecord, StudyEnding
from assay.records.timing import Round
from assay.store.event_log import read_log
from assay.store.result import ended_unseen, settle
from assay.store.run_folder import RunFolder
from assay.studies.drift import NUDGED
from assay.studies.folder import StudyFolder, StudyPlan

_UNFINISHED = frozenset({Status.RUNNING, Status.KILLED, Status.INTERRUPTED})
_LASTING = (CellStartEvent, CellEndEvent, RoundEvent)
"""Events of a wave that its study's log keeps."""


@dataclass
class Progress:
    """Ended cells and rounds of a study."""

    cells: list[CellResult] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    waves: int = 0
    """Smallest number of a wave that no cell has used."""

    def missing(self, plan: StudyPlan) -> list[tuple[int, Wave]]:
        """Return the numbered waves of the cells that have no result.

        A whole wave keeps its number. The rest of a wave gets a new one, because its cells take turns with each other
        and not with those that have ended. Figures are paired within a wave only.
        """
        ended = {one.cell.name for one in self.cells}
        found, next_free = [], max(self.waves, len(plan.waves))
        taken = {one.wave for one in self.cells}  # by the rest of a wave, before a limit of time lengthened the plan
        for number, wave in enumerate(plan.waves):
            left = tuple(cell for cell in wave if cell.name not in ended)
            if left == wave and number not in taken:
                found.append((number, left))
            elif left:
                found.append((next_free, left))
                next_free += 1
        return found


def fold(plan: StudyPlan, events: Sequence[LogEvent], home: Home) -> Progress:
    """Return the results of all cells whose runs have ended, in the order of their ends."""
    cells = {cell.name: cell for cell in plan.cells}
    done = Progress()
    runs: dict[str, tuple[Cell, str, int]] = {}
    started: dict[tuple[str, int], str] = {}
    rounds: dict[tuple[int, int], Round] = {}
    for event in events:
        if isinstance(event, CellStartEvent) and event.cell in cells:
            cell, run, wave = cells[event.cell], event.run, event.wave
            if started.get((cell.name, wave), run) != run:
                # The cell starts again in this wave, so these rounds are of an earlier attempt at the wave.
                rounds = {key: one for key, one in rounds.items() if one.wave != wave}
            started[cell.name, wave] = run
            runs[cell.name] = (cell, run, wave)
            done.waves = max(done.waves, wave + 1)
        elif isinstance(event, RoundEvent):
            rounds[event.round.wave, event.round.number] = event.round
    done.cells = [found for one in runs.values() if (found := _ended(*one, home)) is not None]
    kept = {one.wave for one in done.cells}
    done.rounds = [one for one in rounds.values() if one.wave in kept]
    return done


def record_of(plan: StudyPlan, done: Progress, ending: StudyEnding, left: Sequence[Cell] = ()) -> ComparisonRecord:
    """Return the record of a study that has come this far; `left` are cells that a limit of time held back."""
    return ComparisonRecord(
        id=plan.id,
        created=plan.created,
        title=plan.title,
        kind=plan.kind,
        **plan.stated(),
        base=plan.base,
        seeds=plan.seeds,
        treatments=_treatments(plan, done),
        ending=ending,
        protocol=plan.protocol,
        halving=plan.halving,
        cells=tuple(one for one in done.cells if one.cell.treatment != NUDGED),
        nudged=tuple(one for one in done.cells if one.cell.treatment == NUDGED),
        rounds=tuple(one for one in done.rounds if one.order),
        held_back=tuple(left),
        unsealed=plan.unsealed,
    )


def _treatments(plan: StudyPlan, done: Progress) -> tuple[str, ...]:
    """Return the rows of a study, without those of later rungs that have no cell."""
    if plan.halving is None:
        return plan.treatments
    ran = {one.cell.treatment for one in done.cells}
    return tuple(row for row in plan.treatments if row in ran or plan.halving.rung_of(row) == 0)


def _ended(cell: Cell, run: str, wave: int, home: Home) -> CellResult | None:
    """The result of a cell's run; None if it has not ended by itself, or its folder is gone."""
    folder = RunFolder(home.runs / run)
    try:
        result = settle(folder)
    except UsageError:
        return None
    if result.status in _UNFINISHED or ended_unseen(result):  # damaged, if its log is, too
        return None
    return cell_result(cell, wave, result, folder.events())


def gather_waves(folder: StudyFolder) -> None:
    """Add what earlier waves did to the study's log. Raises `UsageError` if a wave still runs."""
    known = folder.events()
    for log in sorted((folder.path / "waves").glob("[0-9]*.jsonl")):
        files = WaveFiles(folder.path, int(log.stem))
        if files.running:
            raise UsageError(f"wave {files.number} of the study {folder.id} still runs; {files.stop} would stop it")
        for event in _missing([event for event in read_log(log).events if isinstance(event, _LASTING)], known):
            folder.append(event.line())


def _missing(told: Sequence[LogEvent], known: Sequence[LogEvent]) -> list[LogEvent]:
    """Return a wave's events that the study's log lacks, without starts of cells that it has started again since.

    Attempts at a wave may have the same rounds, so only what is known since the start of this attempt counts.
    """
    starts = [known.index(event) for event in told if isinstance(event, CellStartEvent) and event in known]
    since = known[min(starts) :] if starts else ()
    again = {event.cell for event in since if isinstance(event, CellStartEvent) and event not in told}
    missing = [event for event in told if event not in since]
    return [event for event in missing if not isinstance(event, CellStartEvent) or event.cell not in again]
