"""Pinned cores: the share of each rank, and a process that is told what it may use."""

import os
import subprocess
import sys
import time

import pytest

from assay.errors import UsageError
from assay.worker.main import pin, seconds_since_start, share


@pytest.mark.parametrize(
    ("cores", "shares"),
    [
        ([3, 5, 7, 9], [(3, 5), (7, 9)]),
        ([3, 5, 7], [(3,), (5,)]),
        ([4], [(4,), (4,)]),
    ],
)
def test_ranks_divide_the_cores(cores: list[int], shares: list[tuple[int, ...]]) -> None:
    assert [tuple(share(cores, rank, 2)) for rank in range(2)] == shares
    assert tuple(share(cores, 0, 1)) == tuple(cores)


def test_a_process_is_pinned_as_a_rank_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: asked.append((process, tuple(cores))))
    pin(None)
    assert asked == []
    pin([0, 1])
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    pin([0, 1])
    assert asked == [(0, (0, 1)), (0, (1,))]


def test_all_threads_of_a_pinned_process_stay_on_its_core() -> None:
    last = max(os.sched_getaffinity(0))
    code = (
        "import os, threading; from assay.worker.main import pin\n"
        f"pin([{last}])\n"
        "thread = threading.Thread(target=lambda: print(os.sched_getaffinity(0)))\n"
        "thread.start(); thread.join()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == f"{{{last}}}\n"


def test_a_core_that_the_system_refuses_is_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"cannot pin a process to the cores \[4095\]"):
        pin([4095])


def test_a_process_is_not_older_than_its_start() -> None:
    """The host's boot is known in whole seconds only, and a process seemed up to one of them older than it was."""
    began = time.monotonic()
    said = subprocess.run(
        [sys.executable, "-c", "from assay.worker.main import seconds_since_start as s; print(s())"],
        capture_output=True,
        check=True,
    )
    assert 0 < float(said.stdout) <= time.monotonic() - began + 0.02
    assert seconds_since_start() > float(said.stdout)
