"""A fork of a process: its streams, its code, and what it does not keep of its parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from assay.platforms import CAN_FORK_WITH_THREADS, Fork

pytestmark = pytest.mark.skipif(not CAN_FORK_WITH_THREADS, reason="needs os.fork")


def echo() -> int:
    """Answer each line of standard input in capitals; end with 7 when it is closed."""
    while line := os.read(0, 100):
        os.write(1, line.upper())
    return 7


def test_it_is_asked_and_answers_until_its_input_closes(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        fork = Fork(echo, log)
    fork.stdin.write(b"beginning-0\n")
    fork.stdin.flush()
    assert os.read(fork.stdout.fileno(), 100) == b"BEGINNING-0\n"
    fork.stdin.close()
    assert fork.stdout.read() == b""
    assert (fork.wait(), fork.returncode) == (7, 7)
    fork.kill()  # of one that has ended


def test_it_holds_no_pipe_of_its_parent(tmp_path: Path) -> None:
    read, written = os.pipe()
    with (tmp_path / "log").open("wb") as log:
        fork = Fork(echo, log)
    os.close(written)
    assert os.read(read, 1) == b""  # it would wait for ever if the fork held the other end
    fork.stdin.close()
    fork.wait()


def test_the_log_has_what_its_work_raises(tmp_path: Path) -> None:
    def fails() -> int:
        raise ValueError("no record there")

    with (tmp_path / "log").open("wb") as log:
        fork = Fork(fails, log)
    assert fork.wait() == 1
    assert "ValueError: no record there" in (tmp_path / "log").read_text()


def test_one_that_is_killed_is_waited_for_without_sleeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "log").open("wb") as log:
        fork = Fork(echo, log)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it slept"))
    fork.kill()
    assert fork.wait() == -signal.SIGKILL


def test_it_has_streams_of_its_own_whatever_its_parent_has_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)

    def answers() -> int:
        print(sys.stdin.readline().strip() + " was heard")
        print("a warning", file=sys.stderr)
        return 0

    with (tmp_path / "log").open("wb") as log:
        fork = Fork(answers, log)
    fork.stdin.write(b"a word\n")
    fork.stdin.flush()
    assert fork.stdout.read() == b"a word was heard\n"
    assert fork.wait() == 0
    assert (tmp_path / "log").read_text() == "a warning\n"


def test_it_is_waited_for_with_a_limit_and_can_be_killed(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        fork = Fork(echo, log)
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0.05)
    fork.kill()
    assert fork.wait() == -signal.SIGKILL


def test_it_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal, sys\nfrom assay.platforms import Fork\n"
        "from test_fork import echo\n"
        "with open(sys.argv[1], 'wb') as log:\n    fork = Fork(echo, log)\n"
        "print(fork.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # The fork does not hold the output of its parent, so `run` returns once both have let go of it.
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "log")], env=given, capture_output=True, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    assert int(done.stdout) > 0
