"""Files and folders that are made whole: what a kill leaves is removed by the next who looks, and nothing else."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay import files
from assay.config import Home
from assay.errors import StorageError

_KILLED = """
import os, sys
from pathlib import Path
from assay import files
with files.{what}:
    print("made", flush=True)
    {then}
"""


def started(what: str, then: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED.format(what=what, then=then)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    return process


def old(folder: Path) -> list[str]:
    """The hidden names of a folder, made an hour old."""
    found = [*folder.glob(".making-*"), *folder.glob(".aside-*")]
    for one in found:
        os.utime(one, (time.time() - 3600, time.time() - 3600))
    return [one.name for one in found]


@pytest.mark.parametrize(
    "what", ["new_folder(Path({place!r}) / 'made', lambda there: True)", "new_file(Path({place!r}) / 'made')"]
)
def test_remains_of_a_killed_process_are_removed_and_files_in_the_making_are_not(what: str, tmp_path: Path) -> None:
    call = what.format(place=str(tmp_path))
    with started(call, "sys.stdin.read()") as living, started(call, "os.kill(os.getpid(), 9)") as dead:
        dead.wait()
        assert len(old(tmp_path)) == 2
        files.sweep(tmp_path)
        assert len(old(tmp_path)) == 1
        living.kill()
        living.wait()
        files.sweep(tmp_path)
    assert old(tmp_path) == []


def test_scratch_of_a_killed_process_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with started("scratch('steps')", "os.kill(os.getpid(), 9)") as dead:
        dead.wait()
    assert len(old(tmp_path)) == 1
    (tmp_path / ".making-of-another-program").mkdir()
    with files.scratch("heap") as folder:
        old(tmp_path)
        with files.scratch("heap") as second:
            assert sorted(one.name for one in tmp_path.iterdir()) == sorted(
                [".making-of-another-program", folder.name, second.name]
            )


def test_a_file_that_is_young_or_cannot_be_held_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".making-young").mkdir()
    files.sweep(tmp_path)
    assert len(old(tmp_path)) == 1
    monkeypatch.setattr("assay.files.hold", lambda folder: None)
    files.sweep(tmp_path)
    assert len(old(tmp_path)) == 1
    monkeypatch.undo()
    files.sweep(tmp_path)
    assert old(tmp_path) == []


def test_a_file_that_could_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        files.write_file(tmp_path / "record.json", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(StorageError, match="is not a regular file, and would be replaced"):
            files.write_file(place, b"x")
    assert (tmp_path / "pipe").is_fifo()


def test_the_next_command_that_writes_removes_what_a_killed_import_left(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").ready()
    for name in (".making-import-1", ".aside-a-run-2", ".removed-a-run-3"):
        (home.runs / name / "a-run").mkdir(parents=True)
        os.utime(home.runs / name, (time.time() - 3600, time.time() - 3600))
    (home.runs / "a-run").mkdir()
    home.ready()
    assert [one.name for one in home.runs.iterdir()] == ["a-run"]


def test_a_folder_that_is_being_removed_is_left_to_whoever_does_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    os.utime(tmp_path / "run", (time.time() - 3600, time.time() - 3600))
    plain = files.shutil.rmtree

    def slowly(folder: Path) -> None:
        monkeypatch.undo()
        files.sweep(tmp_path)
        assert folder.is_dir()
        plain(folder)

    monkeypatch.setattr("assay.files.shutil.rmtree", slowly)
    files.remove_folder(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
