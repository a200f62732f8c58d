"""The folders that an archive of runs and studies takes from a home."""

from collections.abc import Sequence
from pathlib import Path

from assay.config.home import Home
from assay.errors import UsageError
from assay.records.status import Status
from assay.store.lookup import find as find_run
from assay.store.lookup import run_folders
from assay.store.reconcile import settle
from assay.store.run_folder import RunFolder
from assay.studies.folder import StudyFolder, folders
from assay.studies.folder import find as find_study


def chosen(home: Home, runs: Sequence[str], studies: Sequence[str]) -> list[Path]:
    """Return the folders of these runs, of these studies, and of the studies' runs; without names all of a home.

    Runs whose process has died are settled first. Raises `UsageError` if one is still running, or if there is none.
    """
    everything = not runs and not studies
    wanted = folders(home) if everything else [find_study(home, name) for name in studies]
    each = run_folders(home) if everything else [find_run(home, name) for name in runs]
    for study in wanted:
        each.extend(runs_of(study, home))
    unique = {folder.path: folder for folder in each}
    for folder in unique.values():
        if settle(folder).status is Status.RUNNING:
            raise UsageError(f"the run {folder.id} is still running; export it when it has ended")
    for study in wanted:
        if study.running:
            raise UsageError(f"the study {study.id} is still running; export it when it has ended, or stop it")
    found = sorted({*unique, *(study.path for study in wanted)})
    if not found:
        raise UsageError(f"there are no runs and no studies in {home.root} to export")
    return found


def runs_of(study: StudyFolder, home: Home) -> dict[RunFolder, str]:
    """Return the folders of a study's runs, of every attempt, that are still in the home, each with its cell's name."""
    names = {event["run"]: event["cell"] for event in study.events() if event["event"] == "cell_start"}
    record = study.record()
    if record is not None:
        names |= {one.result.run: one.cell.name for one in (*record.cells, *record.nudged)}
    found = {RunFolder(home.runs / run): cell for run, cell in sorted(names.items())}
    return {folder: cell for folder, cell in found.items() if folder.path.is_dir()}
