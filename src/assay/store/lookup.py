"""Find the folder of a run by its id or name, by the start of either, or by `last`."""

import os
import re

from assay.config.home import Home
from assay.errors import UsageError, suggestion
from assay.store.cells import studies_by_run
from assay.store.index import given_name
from assay.store.run_folder import RunFolder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def run_folders(home: Home) -> list[RunFolder]:
    """Every run's folder, oldest first, without hidden folders (being removed) and folders without a record."""
    return _whole(home, _ids(home))


def find(home: Home, name: str) -> RunFolder:
    """Find the run with this id or name, or the only one whose id or name starts with it; `last` was started last.

    A cell of a study is the last run only where there are no others. Raises `UsageError` if there is none, or more than
    one.
    """
    if name == "last":
        folders, studies = run_folders(home), studies_by_run(home)
        own = [folder for folder in folders if folder.id not in studies]
        if folders:
            return min(own or folders, key=lambda folder: folder.age_seconds())
    ids = _ids(home)
    exact = _whole(home, [run for run in ids if name and name in (run, given_name(run))])
    matching = exact or _whole(home, [run for run in ids if name and _starts(run, name)])
    if len(matching) == 1:
        return matching[0]
    if matching:
        shown = ", ".join(folder.id for folder in matching[:3]) + (", …" if len(matching) > 3 else "")
        what = "is the name" if exact else "is the start"
        raise UsageError(f"{name!r} {what} of {len(matching)} runs ({shown}); write more of the id")
    if not run_folders(home):
        raise UsageError(
            f"there are no runs in {home.runs}; start one with `assay train`, or set ASSAY_HOME to another home"
        )
    known = [one for run in ids for one in (run, given_name(run)) if one]
    hint = suggestion(name, known) or "; `assay runs ls` lists them"
    raise UsageError(f"there is no run {name!r} in {home.runs}{hint}")


def check_name(home: Home, name: str) -> None:
    """Raise `UsageError` if a new run cannot have this name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name {name!r} is not possible; take up to 64 letters, digits, dots, dashes and underscores, "
            "and begin with a letter or a digit"
        )
    if name == "last":
        raise UsageError("--name last is not possible, because `last` means the run that was started last")
    taken = next((run for run in _ids(home) if name in (run, given_name(run))), None)
    if taken is not None:
        raise UsageError(f"the name {name!r} is taken by the run {taken}; choose another, or remove that run")


def _ids(home: Home) -> list[str]:
    runs = home.checked().runs
    return sorted(name for name in os.listdir(runs) if not name.startswith(".")) if runs.is_dir() else []


def _starts(run: str, text: str) -> bool:
    return run.startswith(text) or (given_name(run) or "").startswith(text)


def _whole(home: Home, runs: list[str]) -> list[RunFolder]:
    folders = [RunFolder(home.runs / run) for run in runs]
    return [folder for folder in folders if folder.spec_file.exists() or folder.result_file.exists()]
