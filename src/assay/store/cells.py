"""Runs that are cells of studies, by the logs of the studies.

A cell trains for its study: it may be nudged, or repeat another, or be evaluated on batches of its own. Lists of runs
show its study in its place. Logs are searched and not parsed, so that thousands of runs are listed at once.

A study that was killed while a cell started has not named its run. Its log has the time of that start, so the run is
one that was made then with the configuration of a cell.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from assay.config.home import Home
from assay.files import open_file, read_file
from assay.store.index import Entry

_STARTED = re.compile(rb'"event": ?"cell_start"[^\n]*?"run": ?"([^"\n]+)"')
_RECORDED = re.compile(rb'"run": ?"([^"\n]+)"')
_BEGINNING = re.compile(rb'^.*"event": ?"(?:turn"[^\n]*"piece": ?"start"|cell_start").*$', re.MULTILINE)
_KEPT_LOGS = 4096
_LONGEST_START = 60
"""Seconds from the note that a cell starts to the folder of its run; it may wait for a process that imports torch."""


_LATEST = 4e9
"""Seconds since the epoch after which no run is made; a damaged log may have any number."""


class _Named(NamedTuple):
    """Runs of a study as its log or its record names them."""

    runs: tuple[str, ...] = ()
    unnamed: tuple[float, ...] = ()
    """Times at which cells began to start whose runs are not named."""


def studies_by_run(home: Home) -> dict[str, str]:
    """Return the id of its study for each run that is a cell; of several, the first."""
    found: dict[str, str] = {}
    places = sorted(home.reports.iterdir()) if home.reports.is_dir() else []
    named = {place: _runs_of(place) for place in places if not place.name.startswith(".")}
    for place, one in named.items():
        for run in one.runs:
            found.setdefault(run, place.name)
    for place, one in named.items():
        for run in _begun_at(home, one.unnamed) if one.unnamed else ():
            if run not in found and _is_cell(home.runs / run, place):
                found[run] = place.name
    return found


def _begun_at(home: Home, times: Iterable[float]) -> Iterator[str]:
    """Yield the runs that were made within a minute of one of these times, by their ids."""
    seconds = {int(time) + later for time in times for later in range(-1, _LONGEST_START)}
    stamps = {f"{datetime.fromtimestamp(one, UTC):%Y%m%d-%H%M%S}" for one in seconds}
    for name in sorted(os.listdir(home.runs)) if home.runs.is_dir() else ():
        if name[:15] in stamps:
            yield name


def _is_cell(run: Path, study: Path) -> bool:
    """Return whether a run has the configuration of a cell in the plan of a study."""
    config, waves = _value(run / "run.json", "config"), _value(study / "study.json", "waves")
    known = [wave for wave in waves if isinstance(wave, list)] if isinstance(waves, list) else []
    cells = (cell for wave in known for cell in wave if isinstance(cell, dict))
    return config is not None and any(cell.get("run") == config for cell in cells)


def _value(path: Path, key: str) -> Any:
    """Return a value of a file in JSON; None if it cannot be read."""
    try:
        content = json.loads(open_file(read_file(path)))
    except (OSError, ValueError, RecursionError):
        return None
    return content.get(key) if isinstance(content, dict) else None


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


def _runs_of(folder: Path) -> _Named:
    """Return the runs that a study's log names, or its record if it has no log."""
    for name in ("events.jsonl", "comparison.json"):
        try:
            status = (folder / name).stat()
        except OSError:
            continue
        return _named_in(folder / name, status.st_size, status.st_mtime_ns)
    return _Named()


@lru_cache(maxsize=_KEPT_LOGS)
def _named_in(path: Path, size: int, stamp: int) -> _Named:
    """Return the runs that a file names. It is read again if its size or time is another."""
    try:
        content = path.read_bytes()
    except OSError:
        return _Named()
    pattern = _STARTED if path.suffix == ".jsonl" else _RECORDED
    runs = tuple(dict.fromkeys(run.decode(errors="replace") for run in pattern.findall(content)))
    return _Named(runs, tuple(_unnamed(content)))


def _unnamed(log: bytes) -> list[float]:
    """Return the times of the starts in a log that no name of a run follows."""
    begun: dict[str, float] = {}
    lost = []
    for line in _BEGINNING.findall(log):
        try:
            event = json.loads(line)
            cell, time = str(event["cell"]), float(event.get("time", 0.0))
        except (ValueError, KeyError, TypeError):
            continue
        if not 0 <= time < _LATEST:
            continue
        if event["event"] == "turn":
            lost += [begun[cell]] if cell in begun else []
            begun[cell] = time
        else:
            begun.pop(cell, None)
    return [*lost, *begun.values()]
