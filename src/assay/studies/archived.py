"""The folders that an archive of runs and studies takes from a home."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from assay.config.home import Home
from assay.config.model import ModelConfig
from assay.errors import UsageError
from assay.files import open_file
from assay.records.events import CellStartEvent
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.lookup import find as find_run
from assay.store.lookup import run_folders
from assay.store.result import settle
from assay.store.run_folder import RunFolder
from assay.studies.folder import StudyFolder, folders
from assay.studies.folder import find as find_study


class Chosen(NamedTuple):
    """Folders that go into an archive."""

    folders: list[Path]
    damaged: list[str]
    """Sentences on runs and studies of a home that are left out, because nobody could read them elsewhere."""


def chosen_folders(home: Home, runs: Sequence[str], studies: Sequence[str], *, cells: bool = True) -> Chosen:
    """Return the folders of these runs, of these studies, and of the studies' runs; without names all of a home.

    Studies go without their runs if there are to be no cells: a study's record has all that its page shows.
    Runs whose process has died are settled first. Damaged ones are left out. Raises `UsageError` if one is still
    running, if one that is named is damaged, or if there is none.
    """
    everything = not runs and not studies
    wanted = folders(home) if everything else [find_study(home, name) for name in studies]
    each = run_folders(home) if everything else [find_run(home, name) for name in runs]
    named, damaged = {folder.path for folder in each if not everything}, []
    for study in wanted:
        try:
            study.plan()
            each.extend(runs_of(study, home) if cells else ())
        except UsageError as error:
            damaged.append(_left_out(str(error), study.id, everything))
            wanted = [one for one in wanted if one is not study]
    unique = {folder.path: folder for folder in each}
    for folder in list(unique.values()):
        try:
            if settle(folder).status is Status.RUNNING:
                raise _running(f"the run {folder.id}")
            folder.checked()
        except _Running:
            raise
        except UsageError as error:
            damaged.append(_left_out(str(error), folder.id, folder.path not in named))
            del unique[folder.path]
    for study in wanted:
        if study.running:
            raise _running(f"the study {study.id}")
    found = sorted({*unique, *(study.path for study in wanted)})
    if not found:
        raise UsageError(f"there are no runs and no studies in {home.root} to export{'; '.join(['', *damaged])}")
    return Chosen(found, damaged)


class _Running(UsageError):
    """It cannot be exported yet."""


def _running(what: str) -> _Running:
    return _Running(f"{what} is still running; export it when it has ended, or stop it")


def _left_out(reason: str, name: str, silently: bool) -> str:
    """Return a sentence on what is left out. Raises `UsageError` instead for what was named."""
    if not silently:
        raise UsageError(f"{name} cannot be exported: {reason}")
    return f"left out {name}: {reason}"


def check_study(path: Path, home: Home) -> list[ModelConfig]:
    """Return the models in the records of a study that is brought here.

    Raises `UsageError` if a record cannot be read, or is that of another study. It may also have no other result of a
    run than the home has.
    """
    study = StudyFolder(path)
    plan, record = study.plan(), study.record()
    if plan is None and record is None:
        raise UsageError(f"{path} has no study.json and no comparison.json")
    _check_digest(path / "answer.json")
    cells = [] if record is None else [*record.cells, *record.nudged]
    for one in cells:
        _check_against(RunFolder(home.runs / Path(one.result.run).name), one.result)
    planned = [] if plan is None else [plan.base.model, *(cell.run.model for cell in plan.cells)]
    return [*planned, *(one.result.config.model for one in cells)]


def _check_digest(path: Path) -> None:
    try:
        open_file(path.read_bytes() if path.exists() else b"")
    except ValueError as error:
        raise UsageError(f"{path} cannot be read ({error})") from error


def _check_against(here: RunFolder, arriving: RunResult) -> None:
    """Raise `UsageError` if a home has another result of a run. One that was continued since then may differ."""
    known = here.result()
    figures = ("identity", "status", "steps", "train_loss", "val_loss")
    if known is not None and known.steps <= arriving.steps:
        for name in figures:
            if getattr(known, name) != getattr(arriving, name):
                raise UsageError(f"its result of the run {here.id} has another {name} than the run in {here.path}")


def runs_of(study: StudyFolder, home: Home) -> dict[RunFolder, str]:
    """Return the folders of a study's runs, of every attempt, that are still in the home, each with its cell's name."""
    names = {event.run: event.cell for event in study.events() if isinstance(event, CellStartEvent)}
    record = study.record()
    if record is not None:
        names |= {one.result.run: one.cell.name for one in (*record.cells, *record.nudged)}
    found = {RunFolder(home.runs / run): cell for run, cell in sorted(names.items())}
    return {folder: cell for folder, cell in found.items() if folder.path.is_dir()}
