"""Whole studies of fake cells on the command line, and what a resume has to make of one that a fault has ended."""

from collections import Counter
from collections.abc import Callable

from assay.config import Home
from assay.executors.base import News, Started
from assay.records.status import Status
from assay.records.study import CellResult, ComparisonRecord, StudyEnding
from assay.store.event_log import read_log
from assay.store.run_folder import RunFolder
from assay.studies.execution import run as module
from assay.studies.execution.fold import Mode
from assay.studies.execution.study_listing import read_plan
from assay.studies.folder import StudyFolder, find, folders
from support.fake_studies import shape, silent
from support.faults import PATIENCE_SECONDS, Forked, command, quiet

_TINY = "model.n_layer=1, model.n_head=1, model.n_embd=8, model.context_length=8, training.batch_size=2"
_SIZE = f"base: demo\noverrides: [{_TINY}, training.steps=2]\nseeds: 1\nprocesses: 1\nblocks: 1\n"
_COMPARISON = f"kind: comparison\ntreatments: [sdpa_attention]\n{_SIZE}"
STUDIES = {
    "timed": (_COMPARISON, ()),
    "losses": (_COMPARISON, ("--loss-only",)),
    "halving": (
        "kind: successive_halving\nspace: {training.learning_rate: {low: 1e-4, high: 1e-2}}\n"
        f"trials: 2\nsteps: [1, 2]\nreduction: 2\n{_SIZE}",
        (),
    ),
    "here": (_COMPARISON, ("--executor", "here")),
    "long": (_COMPARISON.replace("training.steps=2", "training.steps=400"), ()),
    "slurm": (_COMPARISON, ("--executor", "slurm", "--loss-only")),
    "ray": (_COMPARISON, ("--executor", "ray")),
}
"""Each file of a study, and further words of its command."""


def run(home: Home, kind: str, fault: Callable[[], None] = lambda: None) -> Forked:
    """Run a study in a process of its own, in which a fault is arranged at first."""
    text, words = STUDIES[kind]
    file = home.root.with_name(f"{kind}.yaml")
    file.write_text(text)
    return command(home.root, "study", "run", str(file), *words, fault=fault)


def resumed(home: Home, heard: list[News] | None = None, mode: Mode = Mode.MISSING) -> ComparisonRecord:
    """Resume the last study in this process."""
    tell = (lambda news: None) if heard is None else heard.append
    return module.resume_study(find(home, "last"), module.Execution(home, 1, None, "", silent, tell), mode)


def contents(record: ComparisonRecord) -> dict[str, object]:
    """What a study has of each cell, but for its wave: the rest of a wave is one of its own."""
    return {name: values[1:] for name, values in shape(record).items() if isinstance(values, tuple)}


def undisturbed(home: Home, kind: str) -> dict[str, object]:
    """The contents of a study that nothing happened to."""
    process = run(home, kind)
    assert process.wait() == 0, process.output.read_text()
    return contents(recorded(home))


def recorded(home: Home) -> ComparisonRecord:
    """The record of the last study."""
    record = find(home, "last").record()
    assert record is not None
    return record


def repaired(home: Home, whole: dict[str, object], patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Resume a study whose process has died: exactly the missing cells run, and then there are none."""
    quiet(home.root, patience_seconds)
    if not folders(home):
        assert not list(home.runs.glob("*")), "nothing runs before there is a plan"
        return
    folder = find(home, "last")
    before, plan = ended(folder, home), read_plan(folder)
    heard: list[News] = []
    record = resumed(home, heard)
    is_exact(record, whole)
    if record.timed and plan.executor == "local":  # waves elsewhere end in an orderly way, perhaps amid a round
        assert {len(rounds_of(one, record)) for one in record.cells} == {plan.protocol.blocks}
    assert Counter(one.cell.name for one in heard if isinstance(one, Started)) == Counter(whole.keys() - before.keys())
    assert all(one.result.run == before.get(one.cell.name, one.result.run) for one in record.cells)
    assert folder.record() == record
    stays(home, record)
    quiet(home.root)


def ended(folder: StudyFolder, home: Home) -> dict[str, str]:
    """The slow reference: run of each cell whose start any log names, and that has ended by itself."""
    logs = (folder.events_file, *(folder.path / "waves").glob("*.jsonl"))
    starts = (event for log in logs for event in read_log(log).events if event.event == "cell_start")
    results = {event.cell: RunFolder(home.runs / event.run).result() for event in starts}
    return {name: one.run for name, one in results.items() if one is not None and one.status is Status.DONE}


def is_exact(record: ComparisonRecord, whole: dict[str, object]) -> None:
    """Every cell is there once, with the figures that it has in a study that nothing happened to."""
    assert record.ending is StudyEnding.COMPLETE
    assert Counter(one.cell.name for one in record.cells) == Counter(whole.keys())
    assert {one.result.status for one in record.cells} == {Status.DONE}
    assert contents(record) == whole
    for one in record.cells:
        rounds = rounds_of(one, record)
        assert rounds == [*range(1, len(rounds) + 1)]


def rounds_of(one: CellResult, record: ComparisonRecord) -> list[int]:
    """Numbers of the rounds in which a cell took turns with the others of its wave."""
    return sorted(ended.number for ended in record.rounds if ended.wave == one.wave and one.cell.name in ended.order)


def stays(home: Home, record: ComparisonRecord) -> None:
    """A study that is complete has nothing to run, and its record stays as it is."""
    heard: list[News] = []
    again = resumed(home, heard)
    assert not [one for one in heard if isinstance(one, Started)]
    assert by_name(again) == by_name(record)
    assert sorted(again.rounds, key=str) == sorted(record.rounds, key=str)


def by_name(record: ComparisonRecord) -> dict[str, tuple[str, int]]:
    """Run and wave of each cell."""
    return {one.cell.name: (one.result.run, one.wave) for one in record.cells}
