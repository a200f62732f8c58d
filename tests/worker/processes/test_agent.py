"""What is put on record once it is known whose end explains how a run on several ranks ended."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from assay.config import Home
from assay.launch import spawn as launcher
from assay.launch.prepare import ReadyRun
from assay.launch.spawn import claim_folder
from assay.records.status import Status
from assay.store.result import compose
from assay.store.run_folder import RunFolder
from assay.worker.processes.agent import _conclude, kill_stragglers
from assay.worker.processes.channel import PARENT_GONE
from assay.worker.processes.ends import End

DAMAGED = "every checkpoint is damaged; start a new run"


@pytest.fixture
def folder(ready_run: ReadyRun, home: Home) -> Iterator[RunFolder]:
    with claim_folder(ready_run, home) as claim:
        yield claim.folder


def concluded(folder: RunFolder, said: tuple[Status, str] | None, end: End | None) -> tuple[int, Status, str | None]:
    """Where rank 0 had `said` something: the exit code, and what is on record."""
    if said is not None:
        folder.write_result(compose(folder, *said))
    code = _conclude(folder, end)
    result = folder.result()
    assert result is not None
    return code, result.status, result.reason


def test_a_rank_that_was_killed_is_put_in_the_place_of_a_broken_connection(folder: RunFolder) -> None:
    code, status, reason = concluded(folder, (Status.FAILED, "Connection closed by peer"), End(1, -9))
    assert (code, status) == (3, Status.KILLED)
    assert reason is not None
    assert reason.startswith("rank 1 was killed by signal 9 (SIGKILL); its log is ")


def test_the_first_ranks_own_reason_stays_as_it_is(folder: RunFolder) -> None:
    end = End(0, -15, Status.FAILED, DAMAGED)
    assert concluded(folder, (Status.FAILED, DAMAGED), end) == (1, Status.FAILED, DAMAGED)


def test_a_reason_without_a_result_is_put_on_record(folder: RunFolder) -> None:
    assert concluded(folder, None, End(0, 1, Status.FAILED, DAMAGED)) == (1, Status.FAILED, DAMAGED)


def test_another_ranks_reason_comes_with_its_status_and_its_log(folder: RunFolder) -> None:
    end = End(1, 3, Status.OUT_OF_MEMORY, "out of memory in the phase steady: a tensor of 1 GiB could not be allocated")
    code, status, reason = concluded(folder, (Status.INTERRUPTED, "interrupted"), end)
    assert (code, status) == (3, Status.OUT_OF_MEMORY)
    assert reason == f"rank 1 failed: {end.reason} (its log is {folder.path / 'ranks'})"


@pytest.mark.parametrize("status", [Status.DONE, Status.BUDGET_REACHED])
def test_a_run_that_was_over_stays_so(folder: RunFolder, status: Status) -> None:
    assert concluded(folder, (status, "said"), End(1, -6)) == (status.exit_code, status, "said")


def test_the_log_of_a_rank_without_a_reason_is_read_past_torchs_lines(folder: RunFolder) -> None:
    torchs = "W1122 03:27:00.8 25865 api.py:1028] Sending process 1 closing signal SIGTERM"
    folder.log_file.write_text(f"ImportError: no such thing\n{torchs}\n")
    _, status, reason = concluded(folder, None, End(0, 1))
    assert (status, reason) == (
        Status.FAILED,
        f"rank 0 failed: ImportError: no such thing (its log is {folder.log_file})",
    )


def test_without_a_parent_it_ends_at_once_and_leaves_no_word(folder: RunFolder) -> None:
    """Its standard input is closed while torch is still being imported, and nothing is on record then."""
    agent = subprocess.Popen([*launcher.AGENT, "--ranks", "2", str(folder.path)], stdin=subprocess.PIPE)
    assert agent.stdin is not None
    agent.stdin.close()
    assert agent.wait(timeout=60) == PARENT_GONE
    assert folder.result() is None


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
    with kill_stragglers(NAME, 3, grace_seconds=0.1) as killed:
        time.sleep(1.0)
        assert (killed, [one.poll() for one in workers]) == (set(), [None] * 3)
        first.terminate()
        first.kill()
        assert [one.wait(timeout=30) for one in left] == [-9, -9]
        assert first.wait() == -9  # it was left for who started it
    assert killed == {one.pid for one in left}
