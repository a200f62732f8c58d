"""Runs that are recorded: list, show, compare, remove, carry to another home, and copy to trackers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.config.base import absolute
from assay.config.home import Home, home_of
from assay.errors import StorageError, UsageError

if TYPE_CHECKING:
    from assay.api.result_types import RunTable, TrainedRun
    from assay.store.arrivals import Brought
    from assay.store.index import Entry
    from assay.store.run_folder import RunFolder
    from assay.tracking.following import Tracking

__all__ = ["diff", "export_archive", "import_archive", "listing", "ls", "removable", "rm", "show", "track", "tracking"]


def ls(
    *,
    limit: int | None = None,
    status: str | None = None,
    preset: str | None = None,
    home: Home | Path | str | None = None,
) -> "RunTable":
    """Return the entries of runs, newest first; at most `limit`, of one status, of one preset or file."""
    from assay.api.result_types import RunTable

    found = [one for one in listing(home)[0] if status in (None, one.status) and preset in (None, one.preset)]
    return RunTable(found[:limit])


def listing(home: Home | Path | str | None = None) -> "tuple[list[Entry], list[str]]":
    """Return the entries of all runs, newest first, and sentences on runs that cannot be read."""
    from assay.store.index import Store, reconcile

    place = home_of(home).checked()
    if not place.runs.is_dir():
        return [], []
    found = reconcile(place, Store(place))
    return found.entries, list(found.notes)


def show(name: str, home: Home | Path | str | None = None) -> "TrainedRun":
    """Return the present result of a run. Raises `UsageError` if there is none of this name."""
    from assay.api.result_types import TrainedRun
    from assay.store.lookup import find
    from assay.store.result import settle

    place = home_of(home)
    return TrainedRun.in_home(settle(find(place, name)), place)


def diff(first: str, second: str, home: Home | Path | str | None = None) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return the differences of two runs: configuration, environment, and all figures."""
    from assay.report.runs import configurations, environments, figures

    one, other = show(first, home), show(second, home)
    return {
        "config": configurations(one, other),
        "environment": environments(one, other),
        "figures": figures(one, other),
    }


def removable(names: str | Sequence[str], *, home: Home | Path | str | None = None) -> "list[RunFolder]":
    """Return the folders of runs to delete. Raises `UsageError` if one is running, or is a symbolic link."""
    from assay.store.lookup import find
    from assay.store.processes import is_running

    place = home_of(home)
    folders = list({folder.id: folder for folder in (find(place, name) for name in _listed(names))}.values())
    for folder in folders:
        folder.check_removable()
        if is_running(folder):
            raise UsageError(f"the run {folder.id} is still running; stop it before you remove it")
    return folders


def rm(names: str | Sequence[str], *, home: Home | Path | str | None = None) -> list[str]:
    """Delete one or several runs with all their files, and return their ids. Raises `UsageError` as `removable`."""
    from assay.store.index import Store

    place = home_of(home)
    folders, store = removable(names, home=place), Store(place)
    for folder in folders:
        folder.remove()
        with suppress(StorageError):  # the index leaves out what has no folder, when it can be written again
            store.remove([folder.id])
    return [folder.id for folder in folders]


def export_archive(
    path: Path | str,
    names: str | Sequence[str] = (),
    *,
    studies: str | Sequence[str] = (),
    checkpoints: bool = False,
    without_runs: bool = False,
    home: Home | Path | str | None = None,
    on_note: Callable[[str], None] = lambda sentence: None,
) -> list[str]:
    """Write runs, and studies with all their runs, into one file for another home; return what it has.

    The result lists folders of the home, ``runs/ID`` and ``reports/ID``. Without names and studies the file has all of
    the home. A name that ends with ``.xz`` makes a smaller file. `checkpoints` includes the newest and all kept
    checkpoints, which are large. `without_runs` takes of the named studies their records alone, which have all that
    their answers and pages show.

    Raises `UsageError` if a run or study is still running, or if there is nothing to export, and `StorageError` if the
    disk refuses. Damaged ones are left out, and `on_note` receives a sentence on each; one that is named is refused. It
    receives another one if checkpoints stay behind.
    """
    from assay.store.archive import pack
    from assay.store.run_folder import RunFolder
    from assay.studies.archived import chosen_folders

    if without_runs and (names or not studies):
        raise UsageError("the runs of a study are left out, so studies are to be named, and no runs")
    place = home_of(home).checked()
    folders, damaged = chosen_folders(place, _listed(names), _listed(studies), cells=not without_runs)
    for sentence in damaged:
        on_note(sentence)
    pack(place, folders, Path(path), checkpoints=checkpoints, tables=not without_runs)
    left = [] if checkpoints else [one for one in folders if RunFolder(one).saved_steps()]
    if left:
        on_note(
            f"checkpoints of {'1 run' if len(left) == 1 else f'{len(left)} runs'} stay behind; --checkpoints takes them"
        )
    return [folder.relative_to(place.root).as_posix() for folder in folders]


def import_archive(path: Path | str, *, home: Home | Path | str | None = None) -> "Brought":
    """Bring the runs and studies of an archive into a home; those that it has already stay as they are.

    Code that comes with an archive is left out, and code that a record names does not run before you agree. Raises
    `UsageError` if the file is no archive, is damaged, comes to too much, or has another record of a run that the home
    has.
    """
    from assay.store.arrivals import unpack
    from assay.studies.archived import check_study

    place = home_of(home).checked()
    with place.provisional():
        return unpack(Path(path), place, lambda folder: check_study(folder, place))


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


_COPY_SECONDS = 3600.0
"""Time for the copy of one run, while nothing else waits."""


class Tracked(NamedTuple):
    """Runs that were copied to a tracker."""

    tracker: str
    folder: str
    runs: list[str]
    failure: str | None
    """Reason why the other runs were not copied."""
    look: str | None
    """Command that shows the copies; None if there are none."""


def track(name: str, *, to: str, folder: Path | str | None = None, home: Home | Path | str | None = None) -> Tracked:
    """Copy a run, or all runs of a study, to a tracker: tensorboard, mlflow, wandb or trackio.

    Files are written to `folder`, by default ``tracked/NAME`` of the home, and nothing is sent away. A run that was
    copied before is replaced. Raises `UsageError` if there is no such record, or if the library is not installed.
    """
    from assay.tracking.following import Tracking

    place = home_of(home).checked()
    where = None if folder is None else absolute(folder)
    if where is not None and where.exists() and not where.is_dir():
        raise UsageError(f"{where} is a file; name a folder for the copies")
    group, runs = _titles(place, name)
    with Tracking([to], place, lambda sentence: None, where) as tracking:
        for run, title in runs.items():
            tracking.send(run, title, group, _COPY_SECONDS)
        look = next(iter(tracking.looks), None)
    return Tracked(to, str(where or place.tracked / to), tracking.runs, tracking.failures.get(to), look)


def tracking(
    *names: str,
    home: Home | Path | str | None = None,
    on_message: Callable[[str], None] | None = None,
) -> "Tracking":
    """Return a listener that has runs copied to trackers while they are trained or compared.

    It is a context manager, and copies to ``tracked/NAME`` of the home:

        with assay.runs.tracking("tensorboard") as tracking:
            assay.train("demo", on_event=tracking.event)
            assay.compare("demo", treatments="lion", on_news=tracking.news)

    A tracker that fails never ends a run; `on_message` receives a sentence, which is printed by default. Raises
    `UsageError` for an unknown name, and if a library is not installed.
    """
    from assay.tracking.following import Tracking, print_note

    return Tracking(names, home_of(home), on_message or print_note)


def _titles(home: Home, name: str) -> tuple[str, dict[str, str]]:
    """Return the id of a study, and the title of each of its runs; or an empty id, and the run that is meant."""
    from assay.store.lookup import find as find_run
    from assay.studies.archived import runs_of
    from assay.studies.folder import find as find_study

    run = study = None
    with suppress(UsageError):
        study = None if name == "last" else find_study(home, name)
    try:
        run = find_run(home, name)
    except UsageError:
        if study is None:
            raise
    if run is not None and study is not None:
        raise UsageError(f"{name!r} is the start of the run {run.id} and of the study {study.id}; write more of it")
    if run is not None:
        return "", {run.id: ""}
    assert study is not None
    return study.id, {folder.id: cell for folder, cell in runs_of(study, home).items()}
