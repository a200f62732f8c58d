"""The list of all runs for a reader that stays, such as a server: it writes nothing, and reads each news once.

The first look takes the store's entries as they are, and reads the folders that the store does not know yet. Later
looks read a result once its file has changed. Of a run without a result only the new lines of its log are read, and a
run that died without one is read once. Unlike `index.reconcile`, no result is written for it.
"""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from assay.config.home import Home
from assay.errors import first_line
from assay.records.events import EvaluationEvent, LogEvent, StepEvent
from assay.store.event_log import read_since
from assay.store.index import SCHEMA, TYPES, Entry, entry_of, stamps

_INTERVAL_SECONDS = 1.0
"""Least time between two looks at the folders."""
_CHUNK_BYTES = 4 << 20
"""Most bytes of a log that are read at once."""


class Watch:
    """Entries of a home that stay current. Any thread may use it."""

    def __init__(self, home: Home, interval: float = _INTERVAL_SECONDS) -> None:
        self.home = home
        self.interval = interval
        self._looked = float("-inf")
        self._known = indexed_entries(home)
        self._growing: dict[str, _Growing] = {}
        self._sorted: list[Entry] = []
        self._lock = threading.Lock()

    def entries(self) -> list[Entry]:
        """All entries, newest first, at most an interval old. The list is replaced when it changes, never changed."""
        with self._lock:
            if time.monotonic() - self._looked >= self.interval:
                self._look()
                self._looked = time.monotonic()
            return self._sorted

    def _look(self) -> None:
        there = stamps(self.home)
        news = {run: self._entry(run, stamp) for run, stamp in there.items() if self._has_news(run, stamp)}
        changed = any(self._known.get(run) != entry for run, entry in news.items())
        gone = self._known.keys() - there.keys()
        if changed or gone or not self._sorted:
            self._known = {run: news.get(run) or self._known[run] for run in there}
            self._growing = {run: one for run, one in self._growing.items() if there.get(run) == 0}
            order = sorted(self._known.values(), key=lambda entry: (entry.created or "", entry.run), reverse=True)
            self._sorted = order

    def _has_news(self, run: str, stamp: int) -> bool:
        known = self._known.get(run)
        return known is None or known.stamp != stamp or stamp == 0

    def _entry(self, run: str, stamp: int) -> Entry:
        """Return a run's present entry; for a run whose files cannot be read, only the reason is known."""
        from assay.store.result import settle
        from assay.store.run_folder import RunFolder

        folder = RunFolder(self.home.runs / run)
        try:
            if stamp:
                return entry_of(settle(folder, recorded=False), stamp)
            growing = self._growing.setdefault(run, _Growing(folder.path))
            return growing.entry()
        except Exception as error:  # no content of one folder may prevent the other runs from being listed
            return Entry(run=run, status="damaged", stamp=stamp, reason=first_line(error))


class _Growing:
    """Entry of a run without a result, updated by the new lines of its log."""

    def __init__(self, path: Path) -> None:
        from assay.store.run_folder import RunFolder

        self._folder = RunFolder(path)
        self._offset = 0
        self._entry: Entry | None = None
        self._dead = False

    def entry(self) -> Entry:
        from assay.store.processes import is_running
        from assay.store.result import begun_result, settle

        if not is_running(self._folder):
            if not self._dead or self._entry is None:
                self._entry, self._dead = entry_of(settle(self._folder, recorded=False), 0), True
            return self._entry
        if self._entry is None or self._dead:
            self._entry, self._offset, self._dead = entry_of(begun_result(self._folder.spec()), 0), 0, False
        events, self._offset = read_since(self._folder.events_file, self._offset, _CHUNK_BYTES)
        for event in events:
            self._entry = self._entry._replace(**_figures(event))
        return self._entry


def _figures(event: LogEvent) -> dict[str, Any]:
    """Columns of an entry that an event gives anew."""
    if isinstance(event, StepEvent):
        return {"steps": event.step + 1, "train_loss": event.loss}
    if isinstance(event, EvaluationEvent):
        return {"val_loss": event.loss}
    return {}


def indexed_entries(home: Home) -> dict[str, Entry]:
    """Return the undamaged entries of the store as it is; none if it is missing, of another layout or unreadable.

    A reader of SQLite creates files beside a store whose last writer has closed it. So that nothing is written, such a
    store is read as one that nobody changes. If somebody does, checksums leave out what was read half.
    """
    columns = ", ".join(TYPES)
    in_use = home.store.with_name(f"{home.store.name}-wal").exists()
    address = f"file:{quote(str(home.store))}?mode=ro{'' if in_use else '&immutable=1'}"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=1.0)) as store:
            if store.execute("PRAGMA user_version").fetchone()[0] != SCHEMA:
                return {}
            rows = store.execute(f"SELECT {columns}, checksum FROM runs").fetchall()
    except (sqlite3.Error, UnicodeDecodeError):
        return {}
    found = ((Entry._make(row[:-1]), row[-1]) for row in rows)
    return {entry.run: entry for entry, checksum in found if entry.checksum == checksum}
