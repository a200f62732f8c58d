"""The list of all runs: it says what the folders say, whatever one of them holds."""

import json
import os
import random
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import StorageError
from assay.launch.prepare import ReadyRun
from assay.records.status import Status
from assay.store.index import Entry, Store
from assay.store.listing import Listing, reconcile
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder
from support.records import made, say, step


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
