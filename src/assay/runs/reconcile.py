"""The list of all runs, as their folders say it: the store answers for those without news, and learns of the others.

Whatever one folder holds, the others are listed. A run of which nothing can be read is listed as damaged, and looked at
again each time. Nothing heavy is imported while there is no news: thousands of runs are then listed at once.
"""

import os
import re
from contextlib import suppress
from typing import NamedTuple

from assay.config.home import Home
from assay.errors import StorageError, first_line
from assay.runs.entry import Entry, entry_of
from assay.runs.store import Store

_RUNNING, _DAMAGED = "running", "damaged"
_CREATED = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-")
"""How the id of a run begins."""


class Listing(NamedTuple):
    """All runs of a home."""

    entries: list[Entry]
    """Newest first."""
    notes: list[str]
    """What a person should know: which runs could not be read, and whether the store could be written."""


def reconcile(home: Home, store: Store) -> Listing:
    """Make the store say what the folders say, and return it."""
    known, there = store.entries(), _stamps(home)
    news = {run: _look(home, run, stamp) for run, stamp in there.items() if _has_news(known.get(run), stamp)}
    notes = [entry.reason for entry in news.values() if entry.identity is None and entry.reason is not None]
    try:
        if news:
            store.put(news.values())
        if gone := known.keys() - there.keys():
            store.remove(gone)
    except StorageError as error:
        notes.append(str(error))
    entries = [news.get(run) or known[run] for run in there]
    return Listing(sorted(entries, key=lambda entry: (entry.created or "", entry.run), reverse=True), notes)


def _stamps(home: Home) -> dict[str, int]:
    """When each run's `result.json` was written, by run; 0 where there is none yet.

    Hidden folders are being removed, and a folder without files is just being made.
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
    """What is true of a run now; all that can be said of one whose files cannot be read is why."""
    from assay.runs.folder import RunFolder
    from assay.runs.recover import settle

    folder = RunFolder(home.runs / run)
    try:
        result = settle(folder)
        return entry_of(result, folder.stamp())
    except Exception as error:  # any content of a file must leave the other runs listed
        return Entry(run=run, status=_DAMAGED, stamp=stamp, reason=first_line(error), created=_created(run))


def _created(run: str) -> str | None:
    found = _CREATED.match(run)
    return "{}-{}-{}T{}:{}:{}".format(*found.groups()) if found else None
