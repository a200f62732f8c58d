"""The parent's handle of the fork server, and the processes that it forks."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.config import Home
from assay.data import Prepared
from assay.launch.forked import ForkedProcess, ForkServer
from assay.launch.spawn import fork_server
from assay.records.status import Status
from assay.store.processes import is_locked, try_lock
from assay.store.run_folder import RunFolder
from support.children import NO_SERVER, gone
from support.faults import until
from support.runs import run_folder


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def served(sleeper: "subprocess.Popen[bytes]") -> Iterator[tuple[ForkedProcess, socket.socket]]:
    """The process, and the server's end of the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    assert sleeper.stdin is not None
    assert sleeper.stdout is not None
    with ours, theirs:
        yield ForkedProcess(sleeper.pid, sleeper.stdin, sleeper.stdout, ours), theirs


def test_the_server_says_the_exit_code(served: tuple[ForkedProcess, socket.socket]) -> None:
    process, server = served
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    server.send(b"4")
    assert process.wait() == 4
    server.close()
    assert process.poll() == process.wait(0.0) == process.returncode == 4


def test_without_a_server_its_end_is_seen_and_counts_as_a_kill(
    served: tuple[ForkedProcess, socket.socket], sleeper: "subprocess.Popen[bytes]"
) -> None:
    process, server = served
    server.close()
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    os.kill(sleeper.pid, signal.SIGTERM)
    assert process.wait(10.0) == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_is_signalled_until_it_has_ended(
    served: tuple[ForkedProcess, socket.socket], sleeper: "subprocess.Popen[bytes]", number: signal.Signals
) -> None:
    process, server = served
    (process.terminate if number is signal.SIGTERM else process.kill)()
    assert sleeper.wait(10.0) == -number
    server.send(str(-number).encode())
    assert process.wait() == -number
    process.kill()  # the number of an ended process may be another's


def test_another_process_with_its_number_is_neither_it_nor_signalled(
    served: tuple[ForkedProcess, socket.socket], sleeper: "subprocess.Popen[bytes]"
) -> None:
    process, server = served
    assert process._known is not None
    process._known = process._known.model_copy(update={"started": 1.0, "start_ticks": 1})
    server.close()
    assert process.wait(10.0) == -signal.SIGKILL
    process.kill()
    assert sleeper.poll() is None


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
        assert try_lock(lock)
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
