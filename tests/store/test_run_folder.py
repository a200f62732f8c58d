"""The files of a run: whole or not at all, readable with a torn tail, and free of half-made checkpoints."""

import errno
import os
import re
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import StorageError, UsageError
from assay.launch.prepare import ReadyRun
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder, RunSpec, new_id


@pytest.fixture
def folder(home: Home, ready_run: ReadyRun) -> RunFolder:
    made = RunFolder(home.runs / new_id(ready_run.identity))
    made.prepare(
        RunSpec(
            id=made.id, created="2026-01-01", identity=ready_run.identity, config=ready_run.run, data_folder="somewhere"
        )
    )
    return made


def test_the_request_of_a_run_comes_back(folder: RunFolder, ready_run: ReadyRun) -> None:
    spec = folder.spec()
    assert spec.config == ready_run.run
    assert folder.result() is None
    assert folder.process() is None
    assert folder.stamp() == 0


def test_an_id_shows_time_and_configuration() -> None:
    ids = [new_id("abcdef012345") for _ in range(20)]
    assert all(re.fullmatch(r"\d{8}-\d{6}-abcdef-[0-9a-f]{4}", one) for one in ids)
    assert len(set(ids)) > 15


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_torn_last_line_is_left_out(folder: RunFolder, cut: int) -> None:
    whole = b'{"event": "any", "step": 0}\n{"event": "any", "step": 1}\n'
    folder.events_file.write_bytes(whole + b'{"event": "any", "step": 2}\n'[:-cut])
    assert [event.step for event in folder.events()] == ([0, 1, 2] if cut == 1 else [0, 1])


def test_no_events_yet(folder: RunFolder) -> None:
    assert folder.events() == []


def test_the_newest_complete_checkpoint(folder: RunFolder) -> None:
    assert folder.newest_checkpoint() is None
    for name in ("step-00000002", "step-00000010", ".tmp-step-00000020", "step-100000000", "step-x"):
        (folder.checkpoints / name).mkdir(parents=True)
    assert folder.newest_checkpoint() == folder.checkpoints / "step-100000000"


def test_the_old_result_stays_until_the_new_process_begins(folder: RunFolder) -> None:
    folder.write_result(begun_result(folder.spec()))
    assert folder.stamp() > 0
    folder.prepare(folder.spec())
    assert folder.result() is not None
    folder.begin()
    assert folder.result() is None


def test_a_full_disk_leaves_the_old_file(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_result(begun_result(folder.spec()))
    before = folder.result_file.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"result\.json could not be written: No space left on device"):
        folder.write_result(begun_result(folder.spec()).model_copy(update={"steps": 5}))
    assert folder.result_file.read_bytes() == before
    assert {path.name for path in folder.path.iterdir()} == {"run.json", "result.json"}


def test_a_loss_that_is_not_finite_is_null(folder: RunFolder) -> None:
    folder.write_result(begun_result(folder.spec()).model_copy(update={"train_loss": float("nan")}))
    assert b'"train_loss": null' in folder.result_file.read_bytes()
    result = folder.result()
    assert result is not None
    assert result.train_loss is None


@pytest.mark.parametrize(
    ("content", "faults"),
    [("", "1 fault"), ("{", "1 fault"), ("[]", "1 fault"), ('{"run": 3}', "4 faults"), ("\x00", "1 fault")],
)
def test_a_file_that_cannot_be_read_says_which(folder: RunFolder, content: str, faults: str) -> None:
    folder.result_file.write_text(content)
    with pytest.raises(UsageError, match=rf"result\.json cannot be read \({faults}\)"):
        folder.result()


def test_last_words(folder: RunFolder) -> None:
    assert folder.last_words() == ""
    folder.log_file.write_bytes(b"x" * 20_000 + b"\nTraceback\nValueError: no\xff\n\n")
    assert folder.last_words() == "ValueError: no\N{REPLACEMENT CHARACTER}"


def test_removed(folder: RunFolder, home: Home) -> None:
    folder.remove()
    assert list(home.runs.iterdir()) == []
    with pytest.raises(StorageError):
        folder.remove()


def test_making_one_touches_nothing(tmp_path: Path) -> None:
    RunFolder(tmp_path / "nothing").stamp()
    assert list(tmp_path.iterdir()) == []
