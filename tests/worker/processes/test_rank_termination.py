"""Processes that go on when one of them has ended are killed; as long as all go on, none is."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from assay.worker.processes.rank_termination import killed_in_the_end

NAME = "a.worker.of.this.test"


@pytest.fixture
def workers() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Three that heed no SIGTERM, each in a session of its own."""
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    command = [sys.executable, "-S", "-c", deaf, NAME]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for _ in range(3)]
    for one in started:
        assert one.stdout is not None
        one.stdout.readline()
    yield started
    for one in started:
        one.kill()
        one.communicate()


def test_remaining_processes_are_killed_after_the_grace(workers: list["subprocess.Popen[bytes]"]) -> None:
    first, *left = workers
    with killed_in_the_end(NAME, 3, grace_seconds=0.1) as killed:
        time.sleep(1.0)
        assert (killed, [one.poll() for one in workers]) == (set(), [None] * 3)
        first.terminate()
        first.kill()
        assert [one.wait(timeout=30) for one in left] == [-9, -9]
        assert first.wait() == -9  # it was left for who started it
    assert killed == {one.pid for one in left}
