"""The store: read by many while one writes, made anew when damaged, and brought up to date for a list."""

import json
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.config.run import OwnRows
from assay.errors import StorageError, UsageError
from assay.launch.prepare import ReadyRun
from assay.records.run import Environment
from assay.records.status import Status
from assay.store import index as store_module
from assay.store.index import SCHEMA, Entry, Listing, Store, entry_of, reconcile
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder
from support.records import made, result_of, say, step


def test_ingested_runs_come_back(home: Home) -> None:
    store = Store(home)
    one = result_of(home, "a").model_copy(update={"preset": "demo", "train_loss": 2.5, "val_loss": float("inf")})
    store.ingest(one, 5)
    assert store.entries() == {"a": entry_of(one, 5)}
    entry = store.entries()["a"]
    assert (entry.status, entry.stamp, entry.preset, entry.corpus) == ("done", 5, "demo", "stdlib")
    assert (entry.n_layer, entry.context_length, entry.train_loss) == (1, 8, 2.5)


def test_a_model_of_ones_own_has_no_shape_of_ours(home: Home) -> None:
    result = result_of(home, "a")
    model = result.config.model.model_copy(update={"own": "mine.py:model"})
    rows = OwnRows(targets=1, validation=False)
    ours, text, batches = (
        entry_of(result.model_copy(update={"config": result.config.model_copy(update=change)}), 0)
        for change in ({}, {"model": model}, {"model": model, "own_rows": rows})
    )
    assert (ours.n_layer, ours.corpus) == (1, "stdlib")
    assert (text.n_layer, text.n_embd, text.corpus, text.context_length) == (None, None, "stdlib", 8)
    assert (batches.n_layer, batches.corpus) == (None, None)


def test_a_second_ingest_replaces_the_first(home: Home) -> None:
    store = Store(home)
    store.ingest(result_of(home, "a", Status.RUNNING), 0)
    store.ingest(result_of(home, "a"), 7)
    assert [(entry.status, entry.stamp) for entry in store.entries().values()] == [("done", 7)]


def test_removed_is_forgotten(home: Home) -> None:
    store = Store(home)
    for run in ("a", "b", "c"):
        store.ingest(result_of(home, run), 0)
    store.remove(["a", "c"])
    store.remove(["a"])
    assert list(store.entries()) == ["b"]


def test_entries_are_written_all_or_none(home: Home) -> None:
    store = Store(home)
    good = entry_of(result_of(home, "a"), 1)
    with pytest.raises(OverflowError):
        store.put([good, good._replace(run="b", steps=2**70)])
    assert store.entries() == {}


def test_the_environment_can_be_searched(home: Home) -> None:
    here = {"assay": "1", "torch": "2.13", "python": "3.11", "device": "cpu", "processor": "x", "cores": 2}
    environment = Environment.model_validate({**here, "threads": 2, "memory_bytes": 1})
    Store(home).ingest(result_of(home, "a").model_copy(update={"environment": environment}), 0)
    with sqlite3.connect(home.store) as connection:
        assert connection.execute("select torch, device, threads from runs").fetchall() == [("2.13", "cpu", 2)]


def test_it_is_in_write_ahead_mode_with_its_version(home: Home) -> None:
    Store(home)
    with sqlite3.connect(home.store) as connection:
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
        assert connection.execute("select version from schema").fetchall() == [(SCHEMA,)]


def test_a_newer_layout_is_refused(home: Home) -> None:
    Store(home)
    with sqlite3.connect(home.store) as connection:
        connection.execute("update schema set version = ?", (SCHEMA + 1,))
        connection.execute(f"pragma user_version = {SCHEMA + 1}")
    with pytest.raises(UsageError, match="written by a newer assay"):
        Store(home)


def test_an_older_layout_is_made_anew(home: Home) -> None:
    with sqlite3.connect(home.store) as connection:
        connection.execute("create table schema (version integer primary key)")
        connection.execute("insert into schema values (0)")
        connection.execute("create table runs (run text, something_else text)")
        connection.execute("insert into runs values ('a', 'b')")
    store = Store(home)
    assert store.entries() == {}
    store.ingest(result_of(home, "a"), 0)
    assert len(Store(home).entries()) == 1


@pytest.mark.parametrize("change", ["steps = 7", "status = 'killed'", "reason = x'ff'", "checksum = 1", "run = 'c'"])
def test_a_row_that_was_changed_counts_as_missing(home: Home, change: str) -> None:
    """So that the folder is read again."""
    store = Store(home)
    for run in ("a", "b"):
        store.ingest(result_of(home, run), 0)
    with sqlite3.connect(home.store) as connection:
        connection.execute(f"update runs set {change} where run = 'a'")
    assert list(store.entries()) == ["b"]


@pytest.mark.parametrize("content", [b"this is no database, but a text " * 200, b"SQLite format 3\0" + b"x" * 9000])
def test_a_file_that_is_no_store_is_put_aside(home: Home, content: bytes) -> None:
    home.store.write_bytes(content)
    store = Store(home)
    store.ingest(result_of(home, "a"), 0)
    assert list(store.entries()) == ["a"]
    assert home.store.with_name("store.sqlite.damaged").read_bytes() == content


def test_a_text_that_is_none_makes_the_store_anew(home: Home) -> None:
    store = Store(home)
    store.ingest(result_of(home, "a"), 0)
    with sqlite3.connect(home.store) as connection:
        connection.execute("update runs set reason = cast(x'8aff' as text)")
    assert store.entries() == {}


@pytest.mark.parametrize("layout", ["x'8aff'", "'CREATE TABLE runs (run TEXT)'", "'no statement'"])
def test_a_damaged_layout_is_made_anew(home: Home, layout: str) -> None:
    Store(home).ingest(result_of(home, "a"), 0)
    with sqlite3.connect(home.store) as connection:
        connection.execute("pragma writable_schema = 1")
        connection.execute(f"update sqlite_master set sql = cast({layout} as text) where name = 'runs'")
    connection.close()
    store = Store(home)
    store.ingest(result_of(home, "b"), 0)
    assert "b" in store.entries()


def test_a_home_that_cannot_be_written_has_its_index_in_memory(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    store = Store(home)
    store.ingest(result_of(home, "a"), 0)
    assert list(store.entries()) == ["a"]
    assert not home.store.exists()


def test_a_full_disk_is_a_storage_error(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(home)
    with sqlite3.connect(home.store) as connection:
        pages = connection.execute("pragma page_count").fetchone()[0]
    plain = store_module._connect

    def full(path: str) -> sqlite3.Connection:
        connection = plain(path)
        connection.execute(f"pragma max_page_count = {pages}")
        return connection

    monkeypatch.setattr(store_module, "_connect", full)
    with pytest.raises(StorageError, match="full"):  # noqa: PT012  some rows may still fit
        for number in range(100):
            store.ingest(result_of(home, f"run-{number}"), 0)
    assert Store(home).entries() is not None


def test_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").mkdir()
    store = Store(Home(tmp_path))
    assert "unable to open" in str(store.refusal)
    assert store.entries() == {}


def test_a_disk_that_is_full_from_the_start_keeps_nobody_from_reading(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = store_module._transaction

    def full(connection: sqlite3.Connection, question: Any, path: Path) -> Any:
        if connection.execute("PRAGMA database_list").fetchone()[2]:
            home.store.touch()
            raise sqlite3.OperationalError("database or disk is full")
        return plain(connection, question, path)

    monkeypatch.setattr(store_module, "_transaction", full)
    store = Store(home)
    assert store.entries() == {}
    assert "database or disk is full" in str(store.refusal)
    assert not home.store.exists(), "nothing is left empty"


WRITE = """
import sys
from assay.config import Home
from assay.config.run import OwnRows
from assay.records.status import Status
from assay.store.index import Store
from support.records import result_of
home = Home(sys.argv[1])
store = Store(home)
for number in range(40):
    store.ingest(result_of(home, f"run-{number:03d}", created=f"2026-{number:03d}"), number)
print("written")
"""

READ = """
import sys, time
from assay.config import Home
from assay.config.run import OwnRows
from assay.store.index import Store
from support.records import result_of
store, seen = Store(Home(sys.argv[1])), 0
deadline = time.monotonic() + 60
while seen < 40 and time.monotonic() < deadline:
    rows = list(store.entries())
    assert rows == [f"run-{number:03d}" for number in range(len(rows))], rows
    assert len(rows) >= seen
    seen = len(rows)
print(seen)
"""


def test_four_processes_read_while_one_writes(home: Home) -> None:
    """They also come first together: whoever is first lays the store out."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(home.root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        for code in (READ, READ, READ, READ, WRITE)
    ]
    said = [process.communicate(timeout=90) for process in processes]
    assert [err for _, err in said] == [""] * 5
    assert [out.strip() for out, _ in said] == ["40"] * 4 + ["written"]


def listed(home: Home) -> Listing:
    return reconcile(home, Store(home))


def done(home: Home, ready: ReadyRun) -> RunFolder:
    folder = made(home, ready)
    folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE, "steps": 6}))
    return folder


def statuses(listing: Listing) -> dict[str, str]:
    return {entry.run: entry.status for entry in listing.entries}


def test_a_folder_is_read_once(home: Home, ready_run: ReadyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = done(home, ready_run)
    first = listed(home)
    assert statuses(first) == {folder.id: "done"}
    monkeypatch.setattr(RunFolder, "result", lambda self: pytest.fail("a folder without news was read again"))
    assert listed(home) == first


def test_runs_that_are_gone_are_forgotten(home: Home, ready_run: ReadyRun) -> None:
    folder = done(home, ready_run)
    listed(home)
    folder.remove()
    (home.runs / ".removed-half").mkdir()
    (home.runs / "just-being-made").mkdir()
    (home.runs / "a-file").write_text("")
    assert listed(home) == ([], [])
    assert Store(home).entries() == {}


DAMAGE = {
    "run.json": [b"{", b"\xff\xfe", b"[" * 200_000, b'{"id": ' + b"9" * 6000 + b"}", b"null", b""],
    "result.json": [b"{", b"\xff\xfe", b"[" * 200_000, b"[]", b""],
    "process.json": [b"{", b"\xff\xfe", b"[" * 200_000, b'{"pid": "x"}'],
    "events.jsonl": [
        b'{"event": "step"}\n',
        b'{"event": "step", "step": "one", "loss": [], "seconds": {}, "tokens": null}\n',
        b'{"event": "step", "step": ' + b"9" * 6000 + b"}\n",
        b'{"event": ' + b"[" * 200_000 + b"\n",
        b'{"event": "start", "resumed_at": null}\n',
        b'{"event": "block", "steps": 1}\n\xff\xff\n',
        b'{"event": "step", "step": 1, "loss": 1.0, "seconds": 0.1, "tokens": 10000000000000000000000}\n',
    ],
}


@pytest.mark.parametrize(("file", "content"), [(file, one) for file, several in DAMAGE.items() for one in several])
def test_one_bad_file_hides_no_other_run(home: Home, ready_run: ReadyRun, file: str, content: bytes) -> None:
    good, bad = done(home, ready_run), made(home, ready_run)
    (bad.path / file).write_bytes(content)
    for _ in range(2):
        found = statuses(listed(home))
        assert found[good.id] == "done"
        assert found[bad.id] == ("killed" if file == "process.json" else "damaged")


def test_a_run_that_cannot_be_read_at_all_is_noted(home: Home, ready_run: ReadyRun) -> None:
    bad = made(home, ready_run)
    bad.spec_file.write_text("{")
    (note,) = listed(home).notes
    assert str(bad.spec_file) in note
    (entry,) = listed(home).entries
    assert entry.created is not None
    assert bad.id.startswith(entry.created[:10].replace("-", ""))


@pytest.mark.parametrize("value", [2**63, "\ud800"])
def test_a_figure_that_fits_no_table_is_damage(home: Home, ready_run: ReadyRun, value: object) -> None:
    good, bad = done(home, ready_run), done(home, ready_run)
    facts = json.loads(bad.result_file.read_bytes())
    del facts["digest"]
    name = "reason" if isinstance(value, str) else "steps"
    bad.result_file.write_text(json.dumps({**facts, name: value}))
    found = statuses(listed(home))
    assert (found[good.id], found[bad.id]) == ("done", "damaged")


def test_a_store_that_cannot_be_written_hides_nothing(
    home: Home, ready_run: ReadyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = done(home, ready_run)
    store = Store(home)

    def full(self: Store, entries: list[Entry]) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(Store, "put", full)
    listing = reconcile(home, store)
    assert (statuses(listing), listing.notes) == ({folder.id: "done"}, ["the disk is full"])


def test_a_damaged_store_never_says_something_else(home: Home, ready_run: ReadyRun) -> None:
    """Bytes of the store are changed anywhere: the list stays what the folders say."""
    for number in range(30):
        folder = done(home, ready_run)
        if number % 5 == 0:
            say(folder, {"event": "start"}, step(0))
    whole = listed(home).entries
    _checkpoint_log(home)
    sound = home.store.read_bytes()
    draw = random.Random(12)
    for _ in range(40):
        damaged = bytearray(sound)
        for _ in range(draw.choice([1, 1, 1, 100])):
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        _replace(home.store, bytes(damaged))
        assert listed(home).entries == whole
        assert listed(home).entries == whole


def _checkpoint_log(home: Home) -> None:
    """Bring what is still in the write-ahead log into the file."""
    import sqlite3

    with sqlite3.connect(home.store) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _replace(store: Path, content: bytes) -> None:
    for path in store.parent.glob(f"{store.name}*"):
        path.unlink()
    store.write_bytes(content)


@pytest.mark.parametrize("name", ["run.json", "result.json", "events.jsonl", "process.json", "lock"])
def test_a_pipe_that_nobody_writes_to_hangs_no_list(name: str, home: Home, ready_run: ReadyRun) -> None:
    folder, other = made(home, ready_run), made(home, ready_run)
    (folder.path / name).unlink(missing_ok=True)
    os.mkfifo(folder.path / name)
    assert statuses(listed(home))[other.id] == "killed"
