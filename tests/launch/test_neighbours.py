"""Processor time of the processes of a cell, read from outside."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from assay.launch.neighbours import RUN_VARIABLE, Account, Neighbours, Trees, used_seconds

SPIN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"
SPUN_SECONDS = 0.3

pytestmark = pytest.mark.skipif(not hasattr(os, "getsid"), reason="a process of this system has no session")


@contextmanager
def leader(program: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process with a session of its own, which reports by closing its standard output."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def spent(process: "subprocess.Popen[bytes]") -> float:
    """Processor seconds that a cell of this leader used from its `go` until it said that its work is done."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    beside = Neighbours(Trees())
    with beside.during("another", {"cell": process.pid}):
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"done\n"
    assert beside.turn_seconds["another"] > 0
    return beside.outside_seconds["cell"]


TOLD = """import sys
print('ready', flush=True)
sys.stdin.readline()
{work}
print('done', flush=True)
sys.stdin.read()
"""


def of(work: str) -> str:
    return TOLD.format(work=work)


def test_a_cell_that_waits_uses_nothing() -> None:
    with leader(of("import time; time.sleep(0.3)")) as process:
        assert spent(process) <= 0.02


def test_a_thread_counts() -> None:
    spin = SPIN.format(seconds=SPUN_SECONDS)
    start = f"import threading\nthread = threading.Thread(target=exec, args=({spin!r}, {{}}))\n"
    work = start + "thread.start(); thread.join()"
    with leader(of(work)) as process:
        assert SPUN_SECONDS * 0.8 <= spent(process) <= SPUN_SECONDS * 3


@pytest.mark.parametrize("session", [False, True], ids=["in its session", "in a session of its own"])
@pytest.mark.parametrize("waited", [False, True], ids=["while it lives", "after it was waited for"])
def test_a_child_process_counts_once(*, session: bool, waited: bool) -> None:
    after = "" if waited else "import time\nprint('spun', flush=True)\ntime.sleep(60)\n"
    spin = SPIN.format(seconds=SPUN_SECONDS) + after
    kind = f"stdout=subprocess.PIPE, start_new_session={session}"
    start = f"import subprocess\nchild = subprocess.Popen([sys.executable, '-c', {spin!r}], {kind})\n"
    work = start + "child.stdout.readline()\n" + ("child.wait()" if waited else "")
    with leader(of(work)) as process:
        try:
            assert SPUN_SECONDS * 0.8 <= spent(process) <= SPUN_SECONDS * 3
        finally:
            for one in psutil.Process(process.pid).children(recursive=True):
                one.kill()


def test_a_process_whose_parent_has_ended_counts() -> None:
    spin = SPIN.format(seconds=SPUN_SECONDS) + "print('spun', flush=True)\nimport time\ntime.sleep(60)\n"
    parent = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {spin!r}])"
    work = (
        f"import subprocess\nparent = subprocess.Popen([sys.executable, '-c', {parent!r}], stdout=subprocess.PIPE)\n"
        "parent.wait()\nparent.stdout.readline()"
    )
    with leader(of(work)) as process:
        assert SPUN_SECONDS * 0.8 <= spent(process) <= SPUN_SECONDS * 3


def test_a_process_stays_known_when_it_leaves_the_session_and_its_parent_ends() -> None:
    spin = (
        "import os, sys, time\nsys.stdin.readline()\nos.setsid()\n"
        + SPIN.format(seconds=SPUN_SECONDS)
        + "time.sleep(60)\n"
    )
    work = f"import subprocess\nprint(subprocess.Popen([sys.executable, '-c', {spin!r}], stdin=0).pid, flush=True)"
    with leader(f"import sys\n{work}\nsys.exit()") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        child = psutil.Process(int(process.stdout.readline()))
        trees, leaders = Trees(), {"cell": process.pid}
        before = trees.read(leaders)
        process.wait()
        process.stdin.write(b"go\n")
        process.stdin.flush()
        try:
            while sum(child.cpu_times()[:2]) < SPUN_SECONDS * 0.8:
                time.sleep(0.02)
            assert used_seconds(before["cell"], trees.read(leaders)["cell"]) >= SPUN_SECONDS * 0.7
        finally:
            child.kill()


def test_a_process_that_left_before_it_was_seen_is_known_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    spin = SPIN.format(seconds=SPUN_SECONDS) + "print('spun', flush=True)\nimport time\ntime.sleep(60)\n"
    daemon = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {spin!r}], start_new_session=True)"
    start = (
        f"import subprocess\nparent = subprocess.Popen([sys.executable, '-c', {daemon!r}], stdout=subprocess.PIPE)\n"
    )
    work = start + "parent.wait()\nparent.stdout.readline()"
    monkeypatch.setenv(RUN_VARIABLE, "this run")
    with leader(of(work)) as process:
        monkeypatch.setenv(RUN_VARIABLE, "another run")
        with leader(SPIN.format(seconds=10)):
            try:
                assert SPUN_SECONDS * 0.8 <= spent(process) <= SPUN_SECONDS * 3
            finally:
                for one in psutil.process_iter():
                    with suppress(psutil.Error):
                        if one.environ().get(RUN_VARIABLE) == "this run" and one.pid != process.pid:
                            one.kill()


def test_other_processes_do_not_count() -> None:
    with leader(of("import time; time.sleep(0.4)")) as process, leader(SPIN.format(seconds=10)):
        assert spent(process) <= 0.02


def test_time_moves_to_the_process_that_waited_and_is_not_counted_again() -> None:
    parent, child, new = (1, 0.0), (2, 0.0), (3, 0.0)
    before = {parent: Account(1.0, 0.5), child: Account(10.0, 2.0)}
    assert used_seconds(before, {parent: Account(1.0, 12.75)}) == 0.25
    assert used_seconds(before, {parent: Account(1.0, 0.5)}) == 0.0, "its time is unknown, since nobody waited for it"
    assert used_seconds(before, {**before, new: Account(0.75, 0.0)}) == 0.75
    assert used_seconds(before, {parent: Account(1.0, 0.5), new: Account(0.75, 0.0)}) == 0.75
