"""Find the folder of a run by its id or name, by the start of either, or by `last`; and find cells' studies.

A cell trains for its study: it may be nudged, or repeat another, or be evaluated on batches of its own. Lists of runs
show its study in its place. Logs are searched and not parsed, so that thousands of runs are listed at once.
"""

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from assay.config.home import Home
from assay.errors import UsageError, suggestion
from assay.store.index import Entry, given_name
from assay.store.run_folder import RunFolder

_STARTED = re.compile(rb'"event": ?"cell_start"[^\n]*?"run": ?"([^"\n]+)"')
_RECORDED = re.compile(rb'"run": ?"([^"\n]+)"')
_KEPT_LOGS = 4096


def studies_by_run(home: Home) -> dict[str, str]:
    """Return the id of its study for each run that is a cell; of several, the first."""
    found: dict[str, str] = {}
    places = sorted(home.reports.iterdir()) if home.reports.is_dir() else []
    for place in places:
        for run in () if place.name.startswith(".") else _runs_of(place):
            found.setdefault(run, place.name)
    return found


def fold_cells(entries: Iterable[Entry], studies: Mapping[str, str]) -> list[Entry]:
    """Return entries in their order, with one for each study in the place of the first of its cells.

    The entry of a study has its id, the number of its cells among the entries, and no figures.
    """
    listed = list(entries)
    cells: dict[str, list[Entry]] = {}
    for one in listed:
        if one.run in studies:
            cells.setdefault(studies[one.run], []).append(one)
    rows: dict[str, Entry] = {}
    for one in listed:
        study = studies.get(one.run)
        rows.setdefault(*((one.run, one) if study is None else (study, _row(study, cells[study]))))
    return list(rows.values())


def _row(study: str, cells: list[Entry]) -> Entry:
    done, most = sum(one.status == "done" for one in cells), len(cells)
    first = cells[-1]
    status = f"study of {most} cell{'' if most == 1 else 's'}, {done} done"
    return Entry(run=study, status=status, stamp=0, created=first.created, preset=first.preset, corpus=first.corpus)


def _runs_of(folder: Path) -> tuple[str, ...]:
    """Return the runs that a study's log names, or its record if it has no log."""
    for name in ("events.jsonl", "comparison.json"):
        try:
            status = (folder / name).stat()
        except OSError:
            continue
        return _named_in(folder / name, status.st_size, status.st_mtime_ns)
    return ()


@lru_cache(maxsize=_KEPT_LOGS)
def _named_in(path: Path, size: int, stamp: int) -> tuple[str, ...]:
    """Return the runs that a file names. It is read again if its size or time is another."""
    try:
        content = path.read_bytes()
    except OSError:
        return ()
    pattern = _STARTED if path.suffix == ".jsonl" else _RECORDED
    return tuple(dict.fromkeys(run.decode(errors="replace") for run in pattern.findall(content)))


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
