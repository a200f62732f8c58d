"""Runs that are recorded: list, show, compare, remove, and carry them to another home."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.api.copies import track, tracking
from assay.config.home import Home, home_of
from assay.errors import StorageError, UsageError

if TYPE_CHECKING:
    from assay.api.run_results import RunTable, TrainedRun
    from assay.store.arrivals import Brought
    from assay.store.index import Entry
    from assay.store.run_folder import RunFolder

__all__ = ["diff", "export_archive", "import_archive", "listing", "ls", "removable", "rm", "show", "track", "tracking"]


def ls(
    *,
    limit: int | None = None,
    status: str | None = None,
    preset: str | None = None,
    home: Home | Path | str | None = None,
) -> "RunTable":
    """Return the entries of runs, newest first; at most `limit`, of one status, of one preset or file."""
    from assay.api.run_results import RunTable

    found = [one for one in listing(home)[0] if status in (None, one.status) and preset in (None, one.preset)]
    return RunTable(found[:limit])


def listing(home: Home | Path | str | None = None) -> "tuple[list[Entry], list[str]]":
    """Return the entries of all runs, newest first, and sentences on runs that cannot be read."""
    from assay.store.index import Store
    from assay.store.listing import reconcile

    place = home_of(home).checked()
    if not place.runs.is_dir():
        return [], []
    found = reconcile(place, Store(place))
    return found.entries, list(found.notes)


def show(name: str, home: Home | Path | str | None = None) -> "TrainedRun":
    """Return the present result of a run. Raises `UsageError` if there is none of this name."""
    from assay.api.run_results import TrainedRun
    from assay.store.lookup import find
    from assay.store.result import settle

    place = home_of(home)
    return TrainedRun.of(settle(find(place, name)), place)


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
    disk refuses. Damaged ones are left out, and `on_note` receives a sentence on each; one that is named is refused.
    """
    from assay.store.archive import pack
    from assay.studies.archived import chosen_folders

    if without_runs and (names or not studies):
        raise UsageError("the runs of a study are left out, so studies are to be named, and no runs")
    place = home_of(home).checked()
    folders, damaged = chosen_folders(place, _listed(names), _listed(studies), cells=not without_runs)
    for sentence in damaged:
        on_note(sentence)
    pack(place, folders, Path(path), checkpoints=checkpoints, tables=not without_runs)
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
