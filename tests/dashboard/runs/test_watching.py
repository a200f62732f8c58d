"""The list of runs for a reader that stays: each news is read once, and nothing is written."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from assay.config import Home
from assay.dashboard.runs import watching
from assay.launch.prepare import ReadyRun
from assay.records.status import Status
from assay.store.index import Store, reconcile
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder
from support.records import made, say, step


def watch(home: Home) -> watching.Watch:
    return watching.Watch(home, interval=0.0)


def end(folder: RunFolder, **changes: object) -> None:
    folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE, "steps": 6, **changes}))


def test_it_lists_what_the_store_lists(home: Home, ready_run: ReadyRun) -> None:
    for number in range(3):
        end(made(home, ready_run), steps=number)
    made(home, ready_run).result_file.write_text("{")
    (home.runs / ".removed-half").mkdir()
    ours = watch(home).entries()
    assert ours == reconcile(home, Store(home)).entries
    assert watch(home).entries() == ours  # from the index, which knows them by now


def test_a_home_without_runs_is_empty(tmp_path: Path) -> None:
    assert watch(Home(tmp_path / "nowhere")).entries() == []
    assert not (tmp_path / "nowhere").exists()


def test_known_runs_are_not_read_again(home: Home, ready_run: ReadyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(home, ready_run)
    end(folder)
    reconcile(home, Store(home))
    monkeypatch.setattr(RunFolder, "result", lambda self: pytest.fail("a folder without news was read again"))
    watched = watch(home)
    assert [one.status for one in watched.entries()] == ["done"]
    assert watched.entries() is watched.entries()


def test_a_living_run_grows_by_its_new_lines(home: Home, ready_run: ReadyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.store.processes.is_running", lambda folder: True)
    folder = made(home, ready_run)
    watched = watch(home)
    say(folder, step(0, loss=5.0), step(1, loss=4.0))
    (entry,) = watched.entries()
    assert (entry.status, entry.steps, entry.train_loss) == ("running", 2, 4.0)
    monkeypatch.setattr(RunFolder, "log", lambda self: pytest.fail("the whole log was read"))
    monkeypatch.setattr(RunFolder, "spec", lambda self: pytest.fail("the configuration was read again"))
    say(
        folder,
        step(2, loss=3.0),
        {"event": "evaluation", "step": 3, "loss": 3.5, "perplexity": 1.0, "bits_per_byte": 1.0},
    )
    (entry,) = watched.entries()
    assert (entry.steps, entry.train_loss, entry.val_loss) == (3, 3.0, 3.5)


def test_a_dead_run_counts_as_killed_and_stays_unwritten(
    home: Home, ready_run: ReadyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(home, ready_run)
    say(folder, step(0))
    watched = watch(home)
    assert [one.status for one in watched.entries()] == ["killed"]
    assert not folder.result_file.exists()
    monkeypatch.setattr(RunFolder, "log", lambda self: pytest.fail("a dead run was read twice"))
    assert [one.status for one in watched.entries()] == ["killed"]
    monkeypatch.undo()
    monkeypatch.setattr("assay.store.processes.is_running", lambda folder: True)  # it was resumed
    assert [one.status for one in watched.entries()] == ["running"]
    end(folder)
    assert [one.status for one in watched.entries()] == ["done"]
    folder.remove()
    assert watched.entries() == []


def test_the_index_is_read_without_a_trace(home: Home, ready_run: ReadyRun) -> None:
    folder = made(home, ready_run)
    end(folder)
    store = Store(home)
    reconcile(home, store)
    before = sorted(home.root.iterdir())
    assert watching.indexed_entries(home).keys() == {folder.id}
    assert sorted(home.root.iterdir()) == before
    with closing(sqlite3.connect(home.store)) as writer:  # a row that is only in the log of a living writer
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("INSERT INTO runs (run) VALUES ('unfinished')")
        writer.commit()
        assert watching.indexed_entries(home).keys() == {folder.id}  # it has no checksum


def test_an_index_that_cannot_be_read_is_none(home: Home, ready_run: ReadyRun) -> None:
    end(made(home, ready_run))
    home.store.write_bytes(b"no database" * 1000)
    assert watching.indexed_entries(home) == {}
    assert [one.status for one in watch(home).entries()] == ["done"]


def test_looks_are_not_repeated_within_the_interval(home: Home, ready_run: ReadyRun) -> None:
    watched = watching.Watch(home, interval=1000.0)
    assert watched.entries() == []
    end(made(home, ready_run))
    assert watched.entries() == []
