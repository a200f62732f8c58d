"""A process that leaves: its handlers run and what it said is out, and only one that failed is taken apart."""

import subprocess
import sys

LEAVING = """
import atexit, sys
from assay.worker.processes.exit import leave

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
