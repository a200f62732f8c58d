"""The parent's handle of the fork server: with one that is there, one that cannot start, and one that is killed."""

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.config import Home
from assay.data import Prepared
from assay.launch.forked.process import ForkedProcess
from assay.launch.forked.server import ForkServer
from assay.launch.spawn import fork_server
from assay.records.status import Status
from assay.store.liveness import is_locked, locked
from assay.store.run_folder import RunFolder
from support.children import NO_SERVER, gone
from support.faults import until
from support.runs import run_folder


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with fork_server(Home()) as found:
        yield found
        number = found.pid
    assert number is None or gone(number)


def forked(server: ForkServer, folder: RunFolder) -> ForkedProcess | None:
    with folder.log_file.open("ab") as log, folder.lock_file.open("ab") as lock:
        return server.fork([str(folder.path)], log, lock)


def ended(process: ForkedProcess | None) -> int:
    """Read what a process says until its end → its exit code."""
    assert process is not None
    with process.stdout as said, process.stdin:
        assert list(said)
        return process.wait(30.0)


def ended_by(process: ForkedProcess) -> int:
    with process.stdout, process.stdin:
        return process.wait(30.0)


def test_several_threads_fork_at_once(server: ForkServer, corpus: Prepared, tmp_path: Path) -> None:
    folders = [run_folder(tmp_path / str(number), corpus, {"steps": 2}) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        processes = list(pool.map(lambda folder: forked(server, folder), folders))
        assert list(pool.map(ended, processes)) == [0] * 4
    for folder in folders:
        result = folder.result()
        assert result is not None
        assert result.status is Status.DONE


@pytest.mark.parametrize("program", [NO_SERVER, ("/no/such/program",)])
def test_a_server_that_cannot_start_is_given_up(program: tuple[str, ...], corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 2})
    with ForkServer(program, os.environ) as server:
        assert forked(server, folder) is None
        assert server.pid is None
        assert forked(server, folder) is None
        assert not folder.events_file.exists()


def test_a_child_outlives_a_server_that_is_killed(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 40})
    with fork_server(Home()) as server:
        process = forked(server, folder)
        assert process is not None
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        ended(process)
        result = folder.result()
        assert result is not None
        assert (result.status, result.steps) == (Status.DONE, 40)
        assert forked(server, folder) is None, "it is not started again"


def test_the_folder_is_locked_until_the_child_has_ended(server: ForkServer, corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 10**6})
    with folder.log_file.open("ab") as log, folder.lock_file.open("ab") as lock:
        assert locked(lock)
        process = server.fork([str(folder.path)], log, lock)
    assert process is not None
    assert is_locked(folder.lock_file)
    os.killpg(process.pid, signal.SIGKILL)
    assert ended_by(process) == -signal.SIGKILL
    until(lambda: not is_locked(folder.lock_file), "the lock is left")


def test_a_child_ends_with_its_parent(server: ForkServer, corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 10**6})
    process = forked(server, folder)
    assert process is not None
    process.stdin.close()  # as at the parent's end
    with process.stdout:
        assert process.wait(30.0) == 3


def test_nothing_is_started_that_is_not_asked_for() -> None:
    with ForkServer((sys.executable, "-c", "1/0"), os.environ) as server:
        assert server.pid is None
