"""The state of a study, from its event log and the folders of its runs, and the finished cells that a resume keeps.

The log names the run of each cell before the run works. So a cell whose run has ended counts, even if the process that
ran the study was killed before it could write that down. Runs that were killed or stopped do not count: their cells are
missing, and a resumed study runs them again.

A job of Slurm outlives its coordinator, which then did not copy the news of its waves into the study's log. Before a
study is resumed, no such job may still run, and what the others did is added to the log.

A finished cell is known by its configuration, corpus, package, torch and machine. The plan fixes the configuration. If
any of the others has changed, figures could not be compared, so the cell runs again. The machine is its processor, the
instructions that kernels use, its cores, and the accelerator of a cell that ran on one.

A failure may be a fault of the machine, so `retry-failed` runs it again. Running out of memory and diverging are
results, and never run again except with `force`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from assay.config.home import Home
from assay.config.run import DataConfig
from assay.errors import UsageError
from assay.executors.base import Wave
from assay.executors.elsewhere import WaveFiles
from assay.executors.ended import cell_result
from assay.hardware import Machine
from assay.hardware.detect import installed_version, torch_version
from assay.records.events import CellEndEvent, CellStartEvent, LogEvent, RoundEvent
from assay.records.run import Environment
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


class Mode(StrEnum):
    """Cells that `assay study resume` runs."""

    MISSING = "missing"
    """Cells that have no result."""
    RETRY_FAILED = "retry-failed"
    """Also cells that failed, were killed or timed out."""
    FORCE = "force"
    """All cells."""
    READ_ONLY = "read-only"
    """None: the answer is made from the cells that have ended."""


_FAULTS = frozenset({Status.FAILED, Status.KILLED, Status.TIMED_OUT, Status.UNAVAILABLE, Status.DAMAGED})


def cells_to_keep(cells: Iterable[CellResult], mode: Mode) -> list[CellResult]:
    """Return the finished cells that a mode does not run again."""
    if mode is Mode.FORCE:
        return []
    again = _FAULTS if mode is Mode.RETRY_FAILED else frozenset()
    return [one for one in cells if one.result.status not in again]


def elsewhere(
    cells: Iterable[CellResult], machine: Machine, digest: Callable[[DataConfig], str]
) -> dict[str, list[CellResult]]:
    """Return the cells whose figures are not of this machine, these packages and this text, by what differs.

    `digest` returns the digest of the corpus that a configuration has now. It is asked for cells that recorded theirs.
    """
    found: dict[str, list[CellResult]] = {}
    for one in cells:
        then = one.result.provenance.environment
        if then is None:
            continue
        corpus = None if then.corpus_digest is None else digest(one.cell.run.data)
        if differs := _differs(then, machine, corpus):
            found.setdefault(differs, []).append(one)
    return found


def _differs(then: Environment, machine: Machine, corpus: str | None) -> str:
    """Return the names of what has changed. What a record or this machine does not know is not compared."""
    accelerators = ", ".join(dict.fromkeys(one.name for one in machine.accelerators))
    pairs = {
        "processor": (then.processor, machine.processor),
        "instruction set": (then.instruction_set, machine.instruction_set or None),
        "accelerator": (then.accelerator, accelerators),
        "cores": (then.cores, len(then.pinned) or machine.cores),
        "assay": (then.assay, installed_version()),
        "torch": (then.torch, torch_version()),
        "corpus": (then.corpus_digest, corpus),
    }
    return ", ".join(name for name, (old, new) in pairs.items() if old is not None and new is not None and old != new)
