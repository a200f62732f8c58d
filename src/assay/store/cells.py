"""Runs that are cells of studies, by the logs of the studies.

A cell trains for its study: it may be nudged, or repeat another, or be evaluated on batches of its own. Lists of runs
show its study in its place. Logs are searched and not parsed, so that thousands of runs are listed at once.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from assay.config.home import Home
from assay.store.index import Entry

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

    The entry of a study has its id, the number of its runs among the entries, and no figures. A cell that was killed
    and done again has two runs.
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
    status = f"study of {most} run{'' if most == 1 else 's'}, {done} done"
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
