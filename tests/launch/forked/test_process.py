"""A process whose real parent is another one: its end is told over a socket, or seen if nobody can tell it any more."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from assay.launch.forked.process import ForkedProcess


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
