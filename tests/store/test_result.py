"""What is said of runs that could not say it themselves."""

import os
import random
import socket
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from assay.config import Home
from assay.launch.prepare import ReadyRun
from assay.launch.spawn import _locked
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store import processes as alive
from assay.store.result import begun_result, compose, loss_spread, settle
from assay.store.run_folder import RunFolder, RunProcess
from support.records import made, say, step


def process_of(number: int, **changes: object) -> RunProcess:
    known = {"host": socket.gethostname(), "pid": number, "started": psutil.Process(number).create_time()}
    return RunProcess.model_validate({**known, **changes})


def test_a_living_process_is_believed(home: Home, ready_run: ReadyRun) -> None:
    folder = made(home, ready_run)
    folder.write_process(process_of(os.getpid()))
    say(folder, {"event": "start", "resumed_at": 0}, step(0), step(1))
    result = settle(folder)
    assert (result.status, result.steps) == (Status.RUNNING, 2)
    assert not folder.result_file.exists()


def test_the_same_number_started_at_another_time_is_another_process(home: Home, ready_run: ReadyRun) -> None:
    folder = made(home, ready_run)
    folder.write_process(process_of(os.getpid(), started=psutil.Process().create_time() - 60))
    assert settle(folder).status is Status.KILLED


@pytest.mark.parametrize(
    ("changes", "running"),
    [
        ({"started": 0.0}, True),
        ({"start_ticks": 1}, False),
        ({"boot": "an earlier boot"}, False),
    ],
)
def test_a_clock_that_is_set_changes_nothing(
    home: Home, ready_run: ReadyRun, changes: dict[str, object], running: bool
) -> None:
    """The start is counted in ticks since the boot; the wall clock may say anything."""
    folder = made(home, ready_run)
    me = alive.this_process(os.getpid())
    assert me is not None
    folder.write_process(me.model_copy(update=changes))
    assert alive.is_running(folder) is running


def test_a_process_of_another_host_is_believed(home: Home, ready_run: ReadyRun) -> None:
    folder = made(home, ready_run)
    folder.write_process(process_of(os.getpid(), host="elsewhere", pid=2**30))
    assert settle(folder).status is Status.RUNNING
    say(folder, {"event": "start"})
    hours_ago = time.time() - 3 * 3600
    for path in (folder.spec_file, folder.events_file):
        os.utime(path, (hours_ago, hours_ago))
    assert settle(folder).status is Status.KILLED, "it has been silent for too long"
    assert not folder.result_file.exists(), "or this host's clock was set forward"
    os.utime(folder.events_file)
    assert settle(folder).status is Status.RUNNING


def test_a_process_that_waits_to_be_reaped_has_ended(home: Home, ready_run: ReadyRun) -> None:
    folder = made(home, ready_run)
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE)
    known = process_of(child.pid)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert alive.this_process(child.pid) is None
    folder.write_process(known)
    assert not alive.is_running(folder)
    child.wait()


def test_all_that_a_dead_run_left_is_told(home: Home, ready_run: ReadyRun) -> None:
    folder = made(home, ready_run)
    block = {"steps": 2, "seconds": 0.2, "median_step_seconds": 0.1, "tokens": 32, "process_peak_bytes": 7}
    proof = {"optimization": "sdpa_attention", "observed": "2 of 2", "verdict": True}
    say(
        folder,
        {"event": "start", "resumed_at": 0},
        step(0, phase="first_step", seconds=5.0),
        {"event": "evidence", **proof},
        *(step(index, seconds=index / 10) for index in (1, 2, 3)),
        {"event": "block", "index": 0, **block},
        {"event": "evaluation", "step": 4, "loss": 2.0, "perplexity": 7.4, "bits_per_byte": 2.9},
    )
    result = compose(folder, Status.KILLED, "because")
    assert (result.steps, result.tokens, result.train_loss, result.val_loss) == (4, 64, 0.0, 2.0)
    assert result.first_step_seconds == 5.0
    assert result.step_seconds is not None
    assert (result.step_seconds.median, result.step_seconds.count) == (pytest.approx(0.2), 3)
    assert result.tokens_per_second == pytest.approx(ready_run.run.tokens_per_step / 0.2)
    assert [one.model_dump() for one in result.evidence] == [proof]
    (found,) = result.blocks
    assert block.items() <= found.model_dump().items()
    say(folder, {"event": "start", "resumed_at": 4, "mesh": "dp=2"}, step(4, seconds=0.4))
    result = compose(folder, Status.KILLED, "because")
    assert result.steps == 5
    assert result.step_seconds is not None
    assert (result.step_seconds.median, result.step_seconds.count) == (0.4, 1), "the earlier times are another mesh's"


def test_a_run_that_did_nothing(home: Home, ready_run: ReadyRun) -> None:
    result = compose(made(home, ready_run), Status.KILLED, "because")
    assert (result.steps, result.tokens, result.train_loss, result.step_seconds) == (0, 0, None, None)


def test_a_damaged_line_costs_its_own_event_and_is_said(home: Home, ready_run: ReadyRun) -> None:
    folder = made(home, ready_run)
    say(folder, {"event": "start", "resumed_at": 0}, *(step(index) for index in range(4)))
    lines = folder.events_file.read_bytes().split(b"\n")
    folder.events_file.write_bytes(b"\n".join([*lines[:2], lines[2][:20] + b"\xff" + lines[2][21:], *lines[3:]]))
    result = settle_the_dead(folder)
    assert (result.status, result.steps, result.train_loss) == (Status.DAMAGED, 4, 0.0)
    assert result.reason is not None
    assert result.reason.endswith("; 1 line of events.jsonl cannot be read, so figures may be incomplete")
    assert result.status.resumable


@pytest.mark.parametrize("content", [b"\xff", b"{", b'{"run": 3}', b"[" * 100_000, b'{"steps": ' + b"9" * 5000 + b"}"])
def test_an_unreadable_result_is_damaged(home: Home, ready_run: ReadyRun, content: bytes) -> None:
    folder = made(home, ready_run)
    folder.result_file.write_bytes(content)
    result = settle(folder)
    assert result.status is Status.DAMAGED
    assert result.reason is not None
    assert "result.json cannot be read" in result.reason


def test_a_flipped_digit_is_found(home: Home, ready_run: ReadyRun) -> None:
    """What is left is good JSON, with another figure in it."""
    folder = made(home, ready_run)
    folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE, "steps": 1234}))
    folder.result_file.write_bytes(folder.result_file.read_bytes().replace(b'"steps": 1234', b'"steps": 1834'))
    assert settle(folder).status is Status.DAMAGED


def test_a_live_run_whose_process_cannot_be_read_is_seen_by_its_lock(home: Home, ready_run: ReadyRun) -> None:
    folder = made(home, ready_run)
    folder.process_file.write_bytes(b"\xff")
    with _locked(folder):
        assert settle(folder).status is Status.RUNNING
    assert settle(folder).status is Status.KILLED


def settle_the_dead(folder: RunFolder) -> RunResult:
    """The run's process is one that never was."""
    folder.write_process(RunProcess(host=socket.gethostname(), pid=2**22 + 1, started=0.0))
    return settle(folder)


def resumed(home: Home, ready: ReadyRun) -> tuple[RunFolder, RunResult]:
    """A done run that a process resumed and began, which then died before its first step."""
    folder = made(home, ready)
    folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE, "steps": 6}))
    earlier = folder.result()
    assert earlier is not None
    folder.prepare(folder.spec().model_copy(update={"preset": "another"}))
    folder.begin()
    return folder, earlier


def test_a_result_stands_until_the_process_that_resumed_its_run_has_trained_a_step(
    home: Home, ready_run: ReadyRun
) -> None:
    folder, earlier = resumed(home, ready_run)
    folder.write_process(process_of(os.getpid()))
    assert settle(folder).status is Status.RUNNING
    folder.write_process(process_of(os.getpid(), started=0.0, boot="an earlier boot", start_ticks=1))
    folder.write_result(earlier.model_copy(update={"status": Status.FAILED, "reason": "its checkpoint is damaged"}))
    assert settle(folder, recorded=False) == earlier
    assert folder.stands, "the dashboard writes nothing"
    assert settle(folder) == earlier == folder.result()
    assert folder.spec().preset is None, "the configuration is that of the result again"
    assert not folder.earlier.exists()


def test_after_a_step_the_earlier_result_is_gone(home: Home, ready_run: ReadyRun) -> None:
    folder, _ = resumed(home, ready_run)
    folder.trained()
    assert settle(folder).status is Status.KILLED


def reference(losses: list[float]) -> float:
    """The slow reference: a polynomial fit of degree one."""
    steps = np.arange(len(losses))
    residuals = np.array(losses) - np.polyval(np.polyfit(steps, losses, 1), steps)
    return float(np.sqrt(np.sum(residuals**2) / (len(losses) - 2)))


@pytest.mark.parametrize(("steps", "last"), [(10, 10), (57, 10), (100, 10), (230, 23), (2000, 200)])
def test_it_is_the_deviation_of_the_last_tenth_about_its_line(steps: int, last: int) -> None:
    chance = random.Random(steps)
    losses = [4 - step / steps + chance.gauss(0, 0.05) for step in range(steps)]
    assert loss_spread(losses) == pytest.approx(reference(losses[-last:]), rel=1e-9)


def test_a_straight_line_has_no_spread_and_a_zigzag_all_of_it() -> None:
    assert loss_spread([5 - 0.01 * step for step in range(40)]) == pytest.approx(0, abs=1e-12)
    zigzag = [2 + 0.1 * (-1) ** step for step in range(1000)]
    assert loss_spread(zigzag) == pytest.approx(0.1, rel=0.02)


def test_too_few_losses_and_infinite_ones_have_none() -> None:
    assert loss_spread([3.0] * 9) is None
    assert loss_spread([]) is None
    assert loss_spread([3.0] * 20 + [None]) is None
    assert loss_spread([3.0] * 20 + [float("inf")]) is None
    assert loss_spread([None] * 10 + [3.0] * 10) == 0
