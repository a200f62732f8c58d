"""An index of every run in one SQLite file, so that thousands can be listed without opening each folder.

Only the parent of a run writes here; measured children write files. The file is in write-ahead-log mode: any number of
processes can read while one writes, and a committed row survives a kill. Every row carries a checksum, and a damaged
row counts as missing. An unreadable file is renamed. In each of these cases, and for an older layout, `reconcile` fills
the store anew from the run folders, which are the truth.

An entry is a plain tuple of numbers and texts, so that thousands can be read without the configuration models.

The index of a home that cannot be written, because it is read-only or its disk is full, is read into memory. Its runs
can still be listed. SQLite on a network file system is unsafe; keep `ASSAY_HOME` on a local disk.

For a list of all runs unchanged ones are read from the index, and it is updated for the others. A folder never prevents
the other runs from being listed, whatever its content. A run whose files cannot be read is listed as damaged, and read
again each time. Slow imports happen only if a run has changed, so thousands of runs are listed quickly.
"""

import json
import marshal
import os
import re
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from assay.config.home import Home
from assay.errors import StorageError, UsageError, first_line

if TYPE_CHECKING:
    from assay.records.run import RunResult

_LARGEST = 2**63
_NAMED = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}-[0-9a-f]{4}-(.+)")


def given_name(run: str) -> str | None:
    """The name that a user gave the run with this id, or None."""
    found = _NAMED.fullmatch(run)
    return found[1] if found else None


# More than 20 fields: it is one row of a table in SQLite, and each field is a column.
class Entry(NamedTuple):
    """A row of the store. `None` means that the figure is not available."""

    run: str
    status: str
    stamp: int
    """Stamp of the `result.json` that the entry was made from."""
    reason: str | None = None
    created: str | None = None
    identity: str | None = None
    preset: str | None = None
    corpus: str | None = None
    n_layer: int | None = None
    n_head: int | None = None
    n_embd: int | None = None
    context_length: int | None = None
    optimizations: str = "[]"
    """JSON list of the arguments of ``--with``."""
    steps: int | None = None
    tokens: int | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    tokens_per_second: float | None = None
    tensors_peak_bytes: int | None = None
    process_peak_bytes: int | None = None
    assay: str | None = None
    torch: str | None = None
    device: str | None = None
    processor: str | None = None
    threads: int | None = None
    corpus_digest: str | None = None
    nudge: int | None = None
    """Nudge of the initial weights; 0 if they are as drawn."""
    blocks: int | None = None
    """Number of timed blocks."""
    disturbed_blocks: int | None = None
    """Number of them in which other programs took processor time."""
    val_targets: int | None = None
    """Number of held-out tokens that were predicted for `val_loss`."""
    unproven: int | None = None
    """1 if the run ended as done, and something of its optimizations was not proven."""

    @property
    def evaluation(self) -> tuple[object, ...] | None:
        """Facts on which a loss depends besides the model; None without a loss. Losses of unequal ones are unlike."""
        return None if self.val_loss is None else (self.corpus_digest, self.context_length, self.val_targets)

    @property
    def checksum(self) -> int:
        """CRC-32 of all values, which detects a damaged row of the store."""
        # Version 2 is the oldest with binary floats. Later ones also depend on the identity of strings.
        return zlib.crc32(marshal.dumps(tuple(self), 2))


TYPES = {
    name: next((column for word, column in (("int", "INTEGER"), ("float", "REAL")) if word in str(kind)), "TEXT")
    for name, kind in Entry.__annotations__.items()
}
"""SQLite's type of each column."""


def entry_of(result: "RunResult", stamp: int) -> Entry:
    """Make a run's entry. Raises `ValueError` if a number or a text cannot be stored."""
    config, here = result.config, result.provenance.environment
    named = ("assay", "torch", "device", "processor", "threads", "corpus_digest")
    shape = ("n_layer", "n_head", "n_embd") if config.model.own is None else ()  # one's own has another
    figures = ("steps", "tokens", "train_loss", "val_loss", "val_targets", "tokens_per_second")
    values: dict[str, Any] = {
        "corpus": None if config.own_rows is not None else config.data.path or config.data.corpus,
        "optimizations": json.dumps([str(spec) for spec in config.optimizations]),
        "nudge": config.nudge,
        "unproven": int(bool(result.unproven)),
        "blocks": len(result.speed.blocks),
        "disturbed_blocks": sum(block.disturbed for block in result.speed.blocks),
        **{name: getattr(result, name) for name in ("run", "reason", "created", "identity", "preset", *figures)},
        **{name: getattr(config.model, name) for name in (*shape, "context_length")},
        **{name: getattr(result.memory, name) for name in ("tensors_peak_bytes", "process_peak_bytes")},
        **{name: getattr(here, name, None) for name in named},
    }
    for name, value in values.items():
        if isinstance(value, int) and abs(value) >= _LARGEST:
            raise ValueError(f"{name} is too large a number")
        if isinstance(value, str):
            value.encode()
    return Entry(status=result.status.value, stamp=stamp, **values)


SCHEMA = 7
"""Version of the layout. Raise it if a column or its meaning changes; older stores are then filled from the folders."""

_WAIT_SECONDS = 20.0
_RETRY_SECONDS = 0.02
_REFUSALS = ("disk is full", "disk i/o error", "readonly database", "unable to open")

_COLUMNS = ", ".join(TYPES)
_LAYOUT = (
    "DROP TABLE IF EXISTS runs",
    "DROP TABLE IF EXISTS schema",
    "CREATE TABLE schema (version INTEGER PRIMARY KEY)",
    f"INSERT INTO schema VALUES ({SCHEMA})",
    f"PRAGMA user_version = {SCHEMA}",
    f"CREATE TABLE runs ({', '.join(f'{name} {kind}' for name, kind in TYPES.items())}, checksum INTEGER)",
    "CREATE UNIQUE INDEX runs_by_id ON runs (run)",
)
_INSERT = f"INSERT OR REPLACE INTO runs ({_COLUMNS}, checksum) VALUES ({', '.join('?' * len(TYPES))}, ?)"

Answer = TypeVar("Answer")


class Store:
    """The entries of one home. Raises `UsageError` for a newer layout, and `StorageError` if the disk refuses."""

    def __init__(self, home: Home) -> None:
        self.path = home.store
        self._memory = None if home.writable() else _connect(":memory:")
        self.refusal: str | None = None
        """Why the file can neither be read nor written, so that the index is in memory; None if it can."""
        self._read(lambda connection: None)

    def ingest(self, result: "RunResult", stamp: int) -> None:
        """Write or replace a run's entry; `stamp` identifies the `result.json` that it was made from."""
        self.put([entry_of(result, stamp)])

    def put(self, entries: Iterable[Entry]) -> None:
        """Write or replace entries, all of them or none."""
        rows = [(*entry, entry.checksum) for entry in entries]
        self._ask(lambda connection: connection.executemany(_INSERT, rows))

    def entries(self) -> dict[str, Entry]:
        """Every undamaged entry, by run."""
        rows = self._read(lambda connection: connection.execute(f"SELECT {_COLUMNS}, checksum FROM runs").fetchall())
        found = ((Entry._make(row[:-1]), row[-1]) for row in rows)
        return {entry.run: entry for entry, checksum in found if entry.checksum == checksum}

    def remove(self, runs: Iterable[str]) -> None:
        """Delete the entries of runs."""
        doomed = [(run,) for run in runs]
        self._ask(lambda connection: connection.executemany("DELETE FROM runs WHERE run = ?", doomed))

    def _read(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Run a transaction that only reads. If the disk refuses even that, the index is in memory from then on."""
        try:
            return self._ask(question)
        except _Refused as error:
            self.refusal, self._memory = str(error), _connect(":memory:")
            with suppress(OSError):  # SQLite creates the file before it writes
                if self.path.stat().st_size == 0:
                    self.path.unlink()
            return self._ask(question)

    def _ask(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Run a transaction and return its answer. If the file is damaged, rename it and repeat on a new one."""
        try:
            return self._once(question)
        except _Damaged:
            self._put_aside()
            return self._once(question)

    def _once(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        try:
            if self._memory is not None:
                return _transaction(self._memory, question, self.path)
            return self._once_free(question)
        except UnicodeDecodeError as error:  # SQLite's message quotes the damaged bytes
            raise _Damaged("its layout is not text") from error
        except sqlite3.DatabaseError as error:
            reason = str(error)
            if any(refusal in reason.lower() for refusal in _REFUSALS):
                raise _Refused(f"{self.path} could not be written: {reason}") from error
            if "locked" in reason:
                raise StorageError(
                    f"{self.path} is locked by another process; try again when that process has ended"
                ) from error
            raise _Damaged(reason) from error

    def _once_free(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Run a transaction on the file, again while it is locked.

        SQLite itself waits for a lock, but not while another process creates the file or applies its write-ahead log.
        """
        end = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                with closing(_connect(str(self.path))) as connection:
                    return _transaction(connection, question, self.path)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
            time.sleep(_RETRY_SECONDS)

    def _put_aside(self) -> None:
        """Rename an unreadable file, and delete its write-ahead log, which would be applied to the next file."""
        try:
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
        except OSError as error:
            raise StorageError(f"{self.path} is damaged and cannot be replaced: {error.strerror}") from error


class _Refused(StorageError):
    """The disk refuses to have the file written, which SQLite needs even to read it."""


class _Damaged(Exception):
    """The file is not a readable store."""


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)


def _transaction(
    connection: sqlite3.Connection, question: Callable[[sqlite3.Connection], Answer], path: Path
) -> Answer:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    if _version(connection) != SCHEMA:
        _lay_out(connection, path)
    connection.execute("BEGIN")
    with connection:
        return question(connection)


def _lay_out(connection: sqlite3.Connection, path: Path) -> None:
    # The lock is taken before the version is read again, so that only one of several processes creates the tables.
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        version = _version(connection)
        if version > SCHEMA:
            raise UsageError(
                f"{path} was written by a newer assay (layout {version}, this one knows {SCHEMA}); "
                "update assay, or set ASSAY_HOME to another folder"
            )
        for statement in _LAYOUT if version != SCHEMA else ():
            connection.execute(statement)


def _version(connection: sqlite3.Connection) -> int:
    """Version of the file's layout; 0 if there is none yet."""
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema'").fetchone()
    row = connection.execute("SELECT version FROM schema").fetchone() if there else None
    version = row[0] if row else 0
    if version not in range(SCHEMA + 1) and connection.execute("PRAGMA user_version").fetchone()[0] != version:
        raise sqlite3.DatabaseError("its two layout versions differ")
    return int(version)


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
