"""A process that leaves runs its handlers and says all; and the rank whose end explains the others'."""

import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from assay.records.status import Status
from assay.worker.processes.ends import End, culprit, put_on_record

LEAVING = """
import atexit, sys
from assay.worker.processes.ends import leave

class Late:
    def __del__(self):
        print("taken apart")

kept = Late()
kept.me = kept
atexit.register(print, "a handler ran")
sys.stdout.write("said without an end of line, ")
{before}
leave({code})
"""


def left(code: int, before: str = "") -> subprocess.CompletedProcess[str]:
    program = LEAVING.format(code=code, before=before)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_all_output_is_written_and_the_process_is_not_taken_apart() -> None:
    found = left(0)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == "said without an end of line, a handler ran\n"


def test_who_failed_ends_as_any_process() -> None:
    found = left(3)
    assert found.returncode == 3
    assert "taken apart" in found.stdout


def test_a_stream_that_is_closed_already_does_not_matter() -> None:
    assert left(0, "sys.stdout.close(); atexit.unregister(print)").returncode == 0


def test_torchs_operators_stay_registered_and_other_finalizers_run() -> None:
    before = """
import weakref
def unregister():
    print("unregistered")
unregister.__module__ = "torch.library"
weakref.finalize(kept, unregister)
weakref.finalize(kept, print, "a finalizer ran")
"""
    assert left(0, before).stdout.splitlines() == [
        "said without an end of line, a finalizer ran",
        "a handler ran",
    ]


def test_the_finalizers_that_are_left_out_are_those_of_torch() -> None:
    before = """
import weakref, torch.library
mine = torch.library.Library("assay_test", "DEF")
print(sum(one.peek()[1].__module__ == "torch.library" for one in weakref.finalize._registry) > 0)
"""
    assert left(0, before).stdout.splitlines()[0] == "said without an end of line, True"


DAMAGED = "every checkpoint in x is damaged; start a new run"
PEER = "[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4711"


def failed(rank: int, reason: str | None, at: float = 0.0, code: int = 1, status: Status = Status.FAILED) -> End:
    return End(rank, code, None if reason is None else status, reason, at)


@pytest.mark.parametrize(
    ("ends", "who"),
    [
        # a reason of a rank's own, however its process ended and whoever was found first
        ([failed(0, DAMAGED), failed(1, None, code=-15)], 0),
        ([failed(1, PEER, 2.0), failed(0, DAMAGED, 1.0, code=-15)], 0),
        ([failed(1, None, code=-9), failed(0, DAMAGED)], 0),
        ([failed(0, PEER, 1.0), failed(1, "division by zero", 2.0)], 1),
        ([failed(0, "interrupted", 1.0, 130, Status.INTERRUPTED), failed(1, "division by zero", 2.0)], 1),
        # the earliest of several, and the first rank where they say the same
        ([failed(0, "a", 2.0), failed(1, "b", 1.0)], 1),
        ([failed(1, DAMAGED, 1.0), failed(0, DAMAGED, 2.0)], 0),
        ([failed(1, "b", 1.0, 3, Status.DIVERGED), failed(0, "a", 2.0, 3, Status.DIVERGED)], 0),
        # without one, whoever left no word; the agent's own signal to those that are left is no death
        ([failed(0, PEER), failed(1, None, code=-9)], 1),
        ([failed(1, None, code=-9), failed(0, None, code=-15)], 1),
        ([failed(1, None, code=-15), failed(0, "interrupted", 1.0, 130, Status.INTERRUPTED)], 1),
        ([failed(0, None), failed(1, None, code=-11), failed(2, None, code=-15)], 1),
        ([failed(0, PEER), failed(1, None), failed(2, None, code=-15)], 1),
        # nobody: the first rank's account stands
        ([failed(0, PEER), failed(1, None, code=-15)], None),
        ([failed(0, "interrupted", 1.0, 130, Status.INTERRUPTED)], None),
        ([], None),
    ],
)
def test_whose_end_explains_the_others(ends: list[End], who: int | None) -> None:
    found = culprit(ends)
    assert (found.rank if found else None) == who


def test_a_reason_is_found_where_torchs_agent_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(place))
    put_on_record(Status.OUT_OF_MEMORY, "out of memory")
    found = ProcessFailure(local_rank=1, pid=1, exitcode=3, error_file=str(place))
    end = End.of(found.local_rank, found.exitcode, found.error_file_data)
    assert (end.status, end.reason, int(end.at)) == (Status.OUT_OF_MEMORY, "out of memory", found.timestamp)
    silent = ProcessFailure(local_rank=1, pid=1, exitcode=3, error_file="nowhere")
    assert End.of(1, 3, silent.error_file_data) == End(1, 3)


def test_a_disk_that_refuses_a_reason_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "error.json").mkdir()
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    put_on_record(Status.FAILED, "x")
