"""A resume that is refused changes nothing: the earlier record stands until a new process has begun."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.errors import StorageError, UsageError
from assay.launch import spawn as claim
from assay.launch import spawn as launcher
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.index import Store, reconcile
from assay.store.result import settle
from assay.store.run_folder import RunFolder
from support.children import Fake, make_ready


@pytest.fixture
def done(home: Home, fake: Fake) -> RunFolder:
    with launcher.start(make_ready(home), home) as child:
        assert child.result().status is Status.DONE
    return child.folder


def locked_store(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    def locked(self: Store, result: RunResult, stamp: int) -> None:
        raise StorageError("the store is held by another process")

    monkeypatch.setattr(Store, "ingest", locked)


def full_disk(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    def full(path: Path, content: bytes) -> None:
        raise StorageError(f"{path} could not be written: No space left on device")

    monkeypatch.setattr("assay.store.run_folder.write_file", full)


def disk_full_after_the_start(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    def full(self: RunFolder, process: object) -> None:
        raise StorageError(f"{self.process_file} could not be written: No space left on device")

    monkeypatch.setattr(RunFolder, "write_process", full)


def no_process(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def unwritable_log(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    folder.log_file.unlink()
    folder.log_file.mkdir()


Refusal = Callable[[pytest.MonkeyPatch, RunFolder], None]


@pytest.mark.parametrize("refusal", [locked_store, full_disk, disk_full_after_the_start, no_process, unwritable_log])
def test_a_refused_resume_changes_nothing(
    home: Home, done: RunFolder, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
) -> None:
    files = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (done.spec_file, done.result_file)}
    with monkeypatch.context() as while_it_lasts:
        refusal(while_it_lasts, done)
        with pytest.raises(StorageError):
            launcher.start(make_ready(home, steps=12), home, resume=done)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files} == files
    assert settle(done).status is Status.DONE
    listing = reconcile(home, Store(home))
    assert ([entry.status for entry in listing.entries], listing.notes) == ([Status.DONE], [])


def test_a_run_that_another_process_does_is_refused(home: Home, done: RunFolder) -> None:
    before = done.spec_file.read_bytes()
    with (
        claim._locked(done),
        pytest.raises(UsageError, match="still running"),
        claim.claim_folder(make_ready(home, steps=12), home, done),
    ):
        pytest.fail("it is somebody else's")
    assert done.spec_file.read_bytes() == before
    assert done.result() is not None


def test_a_resume_that_bends_the_schedule_is_recorded_each_time(home: Home, done: RunFolder) -> None:
    for steps in (12, 12, 18):  # warm-up is shorter than the run, or there would be no cosine to bend
        with claim.claim_folder(make_ready(home, steps=steps, warmup_steps=2), home, done):
            pass
    first, second = done.spec().bends
    assert "training.steps=12 in place of 6" in first
    assert "training.steps=18 in place of 12" in second


def test_a_process_that_never_began_leaves_the_earlier_result(home: Home, done: RunFolder, fake: Fake) -> None:
    fake.behaves("stillborn")
    earlier = done.result()
    with launcher.start(make_ready(home, steps=12), home, resume=done) as child:
        assert child.result().status is Status.KILLED, "what became of this attempt"
    assert done.result() == earlier == settle(done), "what is true of the run"


def test_a_new_folder_that_is_refused_is_removed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    no_process(monkeypatch, RunFolder(home.runs / "none"))
    with pytest.raises(StorageError):
        launcher.start(make_ready(home), home)
    assert list(home.runs.iterdir()) == []
