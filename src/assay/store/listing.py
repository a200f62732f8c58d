"""The list of all runs: unchanged runs are read from the store, and the store is updated for the others.

A folder never prevents the other runs from being listed, whatever its content. A run whose files cannot be read is
listed as damaged, and read again each time. Slow imports happen only if a run has changed, so thousands of runs are
listed quickly.
"""

import os
import re
from contextlib import suppress
from typing import NamedTuple

from assay.config.home import Home
from assay.errors import StorageError, first_line
from assay.store.index import Entry, Store, entry_of

_RUNNING, _DAMAGED = "running", "damaged"
_CREATED = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-")
"""Date and time at the start of a run's id."""


class Listing(NamedTuple):
    """All runs of a home."""

    entries: list[Entry]
    """Entries, newest first."""
    notes: list[str]
    """Warnings for the user: runs that could not be read, and a store that could not be written."""


def reconcile(home: Home, store: Store) -> Listing:
    """Update the store from the run folders, and return all entries."""
    known, there = store.entries(), stamps(home)
    news = {run: _look(home, run, stamp) for run, stamp in there.items() if _has_news(known.get(run), stamp)}
    notes = [entry.reason for entry in news.values() if entry.identity is None and entry.reason is not None]
    try:
        if news:
            store.put(news.values())
        if gone := known.keys() - there.keys():
            store.remove(gone)
    except StorageError as error:
        notes.append(str(error))
    if store.refusal is not None:
        notes.append(store.refusal)
    entries = [news.get(run) or known[run] for run in there]
    return Listing(sorted(entries, key=lambda entry: (entry.created or "", entry.run), reverse=True), notes)


def stamps(home: Home) -> dict[str, int]:
    """Modification time of each run's `result.json` in nanoseconds, by run; 0 if there is none yet.

    Hidden folders are being removed, and a folder without files is being created; both are left out.
    """
    found: dict[str, int] = {}
    with suppress(FileNotFoundError), os.scandir(home.runs) as folders:
        for folder in folders:
            if folder.name.startswith("."):
                continue
            try:
                found[folder.name] = os.stat(f"{folder.path}/result.json").st_mtime_ns
            except FileNotFoundError:
                if os.path.exists(f"{folder.path}/run.json"):
                    found[folder.name] = 0
            except NotADirectoryError:
                continue
            except OSError:
                found[folder.name] = 0
    return found


def _has_news(entry: Entry | None, stamp: int) -> bool:
    return entry is None or entry.stamp != stamp or stamp == 0 or entry.status == _RUNNING


def _look(home: Home, run: str, stamp: int) -> Entry:
    """Read a run's present entry; for a run whose files cannot be read, only the reason is known."""
    from assay.store.result import settle
    from assay.store.run_folder import RunFolder

    folder = RunFolder(home.runs / run)
    try:
        result = settle(folder)
        return entry_of(result, folder.stamp())
    except Exception as error:  # no content of one folder may prevent the other runs from being listed
        return Entry(run=run, status=_DAMAGED, stamp=stamp, reason=first_line(error), created=_created(run))


def _created(run: str) -> str | None:
    found = _CREATED.match(run)
    return "{}-{}-{}T{}:{}:{}".format(*found.groups()) if found else None
