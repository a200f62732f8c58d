"""A child that does what it should, and children that do not: none holds up its parent, and each end is told."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import StorageError
from assay.hardware.detect import oom_kills
from assay.launch import child as child_module
from assay.launch import spawn as claim
from assay.launch import spawn as spawn_module
from assay.launch.child import ending
from assay.launch.prepare import ReadyRun
from assay.launch.spawn import claim_folder, start
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.index import Store, entry_of
from assay.store.processes import is_running
from assay.store.result import compose, settle
from assay.store.run_folder import RunFolder
from support.children import FAKE_WORKER, Fake, gone, make_ready

KILLED = "killed by signal 9, perhaps by the system because memory ran out"
LAUNCHER = f"the launcher of its ranks was {KILLED}, and the ranks could not continue without it"


@pytest.mark.parametrize(
    ("ranks", "own", "reason"),
    [
        (1, None, KILLED),
        (2, None, LAUNCHER),
        (2, Status.FAILED, LAUNCHER),
        (2, Status.KILLED, "its own"),
    ],
)
def test_who_was_killed_is_said(home: Home, ranks: int, own: Status | None, reason: str) -> None:
    ready = make_ready(home)
    with claim_folder(replace(ready, run=ready.run.model_copy(update={"ranks": ranks})), home) as claim:
        if own is not None:
            claim.folder.write_result(compose(claim.folder, own, "its own"))
        found = ending(claim.folder, -9, None, None)
    assert (found.status, found.reason) == (Status.KILLED, reason)


COUNTED = "the system counted a process that it killed because memory ran out"


@pytest.mark.parametrize(
    ("code", "ranks", "own", "status", "says"),
    [
        (-9, 1, None, Status.OUT_OF_MEMORY, f"killed by signal 9; {COUNTED}"),
        (-9, 2, Status.FAILED, Status.OUT_OF_MEMORY, f"was killed by signal 9; {COUNTED}, and the ranks could not"),
        (1, 2, Status.KILLED, Status.OUT_OF_MEMORY, f"its own; {COUNTED}"),
        (-11, 1, None, Status.KILLED, "killed by signal 11"),
        (0, 1, Status.DONE, Status.DONE, "its own"),
    ],
)
def test_a_kill_is_out_of_memory_if_the_system_counted_one(
    home: Home, code: int, ranks: int, own: Status | None, status: Status, says: str
) -> None:
    ready = make_ready(home)
    with claim_folder(replace(ready, run=ready.run.model_copy(update={"ranks": ranks})), home) as claim:
        if own is not None:
            claim.folder.write_result(compose(claim.folder, own, "its own"))
        found = ending(claim.folder, code, None, None, ran_out=True)
    assert found.status is status
    assert says in (found.reason or "")


def finished(home: Home, ready: ReadyRun, timeout: float | None = None) -> RunResult:
    with start(ready, home, timeout=timeout) as child:
        result = child.result()
    folder = RunFolder(home.runs / result.run)
    assert folder.result() == result
    assert Store(home).entries()[result.run] == entry_of(result, folder.stamp())
    return result


def test_a_run_is_done_and_recorded(home: Home, ready_run: ReadyRun, fake: Fake) -> None:
    with start(ready_run, home) as child:
        kinds = [event.event for event in child.events()]
        result = child.result()
    assert kinds == ["start", *["phase", "step"] * 6, "evaluation", "end"]
    assert child.finished
    assert result.status is Status.DONE
    assert (result.steps, result.tokens) == (6, 6 * 16)
    assert Store(home).entries()[result.run].status == Status.DONE
    spec = child.folder.spec()
    assert spec.config == ready_run.run
    assert spec.identity == ready_run.identity == result.identity
    assert child.folder.id.split("-")[2] == spec.identity[:6]


def test_two_runs_never_share_a_folder(
    home: Home, ready_run: ReadyRun, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(["a", "a", "b"])
    monkeypatch.setattr(claim, "new_id", lambda identity, name: next(ids))
    for expected in ("a", "b"):
        with start(ready_run, home) as child:
            assert child.result().run == expected


def test_each_turn_is_granted(home: Home, ready_run: ReadyRun, fake: Fake) -> None:
    with start(ready_run, home, turns=3) as child:
        pieces, asked = [], []
        while not child.finished:
            pieces.append([event.event for event in child.turn()])
            asked.append(child.upcoming)
            if not child.finished:
                time.sleep(0.05)
                assert child.folder.events()[-1].event != "yield"
        result = child.result()
    assert asked == ["block", "block", "block", "finish", None]
    assert [piece.count("step") for piece in pieces] == [0, 2, 2, 2, 0]
    assert pieces[-1][-1] == "end"
    assert result.status is Status.DONE


def test_a_child_waits_for_its_turn(home: Home, ready_run: ReadyRun, fake: Fake) -> None:
    with start(ready_run, home, turns=3) as child:
        list(child.turn())
        done = child.folder.events()
        time.sleep(0.4)
        assert child.folder.events() == done
        assert child.result().steps == 6


def test_waiting_for_a_turn_costs_no_time(home: Home, ready_run: ReadyRun, fake: Fake) -> None:
    with start(ready_run, home, turns=2, timeout=2) as child:
        list(child.turn())
        time.sleep(2.2)
        assert child.result().status is Status.DONE


def test_kill_nine_is_recorded_with_what_was_done(home: Home, ready_run: ReadyRun, fake: Fake) -> None:
    fake.behaves("die4")
    result = finished(home, ready_run)
    assert result.status is Status.KILLED
    assert result.reason == "killed by signal 9, perhaps by the system because memory ran out"
    assert (result.steps, result.tokens, result.train_loss) == (4, 64, pytest.approx(2.97))
    assert result.predicted == ready_run.predicted
    assert result.step_seconds is not None
    assert result.step_seconds.count == 4


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("oom_kill 1", "oom_kill 2", Status.OUT_OF_MEMORY),
        ("oom_kill 1", "oom_kill 1", Status.KILLED),
        ("", "oom_kill 1", Status.KILLED),
    ],
)
def test_kill_nine_is_out_of_memory_if_the_control_group_counts_it(
    home: Home,
    ready_run: ReadyRun,
    fake: Fake,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
    status: Status,
) -> None:
    fake.behaves("die4")
    group, counts = home.root / "self/cgroup", home.root / "fs/cgroup/memory.events"
    for path, text in ((group, "0::/"), (counts, before)):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    for module in (spawn_module, child_module):
        monkeypatch.setattr(module, "oom_kills", lambda: oom_kills(home.root, home.root))
    with start(ready_run, home) as child:
        counts.write_text(after)
        result = child.result()
    assert (result.status, result.steps) == (status, 4)
    assert settle(child.folder) == result


def test_a_failure_says_its_last_words(home: Home, ready_run: ReadyRun, fake: Fake) -> None:
    fake.behaves("fail2")
    result = finished(home, ready_run)
    assert result.status is Status.FAILED
    assert result.reason is not None
    assert result.reason.endswith("OSError: [Errno 28] No space left on device")
    assert result.steps == 2


@pytest.mark.parametrize(
    ("mood", "status", "says"), [("fail3", Status.FAILED, "No space left"), ("die3", Status.KILLED, "signal 9")]
)
def test_a_reader_that_sees_the_death_first_does_not_decide_on_its_reason(
    home: Home, ready_run: ReadyRun, fake: Fake, mood: str, status: Status, says: str
) -> None:
    fake.behaves(mood)
    with start(ready_run, home) as child:
        while is_running(child.folder):
            time.sleep(0.01)
        assert settle(child.folder).status is Status.KILLED
        result = child.result()
    assert (result.status, result.steps) == (status, 3)
    assert says in str(result.reason)
    assert child.folder.result() == result
    assert Store(home).entries()[result.run].status == status


def test_a_silent_child_is_timed_out(
    home: Home, ready_run: ReadyRun, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "GRACE_SECONDS", 0.5)
    fake.behaves("hang3")
    before = time.monotonic()
    with start(ready_run, home, timeout=1.0) as child:
        pid = child._process.pid
        result = child.result()
    assert time.monotonic() - before < 4
    assert result.status is Status.TIMED_OUT
    assert result.reason == "stopped after 1 s, its time limit"
    assert result.steps == 3
    assert gone(pid)


def test_a_child_that_stops_in_time_is_still_timed_out(home: Home, fake: Fake) -> None:
    fake.behaves("slow")
    result = finished(home, make_ready(home, steps=500), timeout=0.6)
    assert result.status is Status.TIMED_OUT
    assert 0 < result.steps < 500
    assert RunFolder(home.runs / result.run).newest_checkpoint() is not None


def test_interrupted_it_saves_and_ends(home: Home, fake: Fake) -> None:
    fake.behaves("slow")
    with start(make_ready(home, steps=500), home) as child:
        for event in child.events():
            if event.event == "step" and event.step == 3:
                child.interrupt()
        result = child.result()
    assert result.status is Status.INTERRUPTED
    assert result.status.exit_code == 130
    assert child.folder.newest_checkpoint() == child.folder.checkpoints / f"step-{result.steps:08d}"


def test_a_stubborn_child_is_killed_after_the_grace(home: Home, ready_run: ReadyRun, fake: Fake) -> None:
    fake.behaves("stubborn2")
    with start(ready_run, home) as child:
        for event in child.events():
            if event.event == "step" and event.step == 1:
                time.sleep(0.3)
                child.interrupt(grace_seconds=0.3)
        result = child.result()
    assert result.status is Status.INTERRUPTED
    assert result.steps == 2


def test_processes_that_a_child_started_do_not_outlive_it(home: Home, ready_run: ReadyRun, fake: Fake) -> None:
    fake.behaves("clinging")
    with start(ready_run, home) as child:
        group = child._process.pid
        assert child.result().status is Status.DONE
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            break
        time.sleep(0.05)
    else:
        pytest.fail("a process of the child's group is still there")


def test_leaving_the_block_ends_the_child(home: Home, fake: Fake) -> None:
    fake.behaves("slow")
    with pytest.raises(ZeroDivisionError), start(make_ready(home, steps=500), home) as child:  # noqa: PT012
        next(iter(child.events()))
        pid = child._process.pid
        raise ZeroDivisionError
    assert gone(pid)


def test_an_unreadable_result_is_a_failure(home: Home, ready_run: ReadyRun, fake: Fake) -> None:
    fake.behaves("garbled")
    with start(ready_run, home) as child:
        result = child.result()
    assert result.status is Status.FAILED
    assert result.reason is not None
    assert "result.json cannot be read" in result.reason
    assert result.steps == 6


def test_a_resumed_run_takes_back_what_it_trains_again(home: Home, ready_run: ReadyRun, fake: Fake) -> None:
    fake.behaves("die4")
    with start(ready_run, home) as child:
        assert child.result().status is Status.KILLED
    (child.folder.checkpoints / "step-00000002").mkdir(parents=True)
    with child.folder.events_file.open("ab") as stream:
        stream.write(b'{"event": "step", "st')
    fake.behaves("die3")
    # the child repairs a torn tail; the stand-in leaves that to this test
    whole = child.folder.events_file.read_bytes().rpartition(b"\n")[0] + b"\n"
    child.folder.events_file.write_bytes(whole)
    with start(ready_run, home, resume=child.folder) as again:
        result = again.result()
    assert again.folder.id == child.folder.id
    assert result.status is Status.KILLED
    assert result.steps == 3, "step 3 of the first process stood behind the checkpoint and was not done again"
    fake.behaves()
    with start(ready_run, home, resume=child.folder) as last:
        assert last.result().status is Status.DONE
    assert [entry.status for entry in Store(home).entries().values()] == [Status.DONE]


PARENT = """
import sys, time
from pathlib import Path
from assay.config import Home
from assay.launch import spawn as launcher
from support.children import make_ready
launcher.WORKER = tuple(sys.argv[2:])
home = Home(sys.argv[1])
with launcher.start(make_ready(home, steps=5000), home) as child:
    for event in child.events():
        print(child._process.pid, child.folder.path, flush=True)
"""


def test_a_child_ends_when_its_parent_is_killed(home: Home) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(home.root), *FAKE_WORKER],
        stdout=subprocess.PIPE,
        env={**os.environ, "FAKE": "slow", "PYTHONPATH": str(Path(__file__).parents[1])},
        text=True,
    )
    assert parent.stdout is not None
    pid, path = parent.stdout.readline().split()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 5
    while not gone(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert gone(int(pid))
    assert not (Path(path) / "result.json").exists()
    assert json.loads((Path(path) / "process.json").read_bytes())["pid"] == int(pid)


def test_a_result_that_nobody_can_write_is_a_failure(
    home: Home, ready_run: ReadyRun, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: RunFolder, result: RunResult) -> None:
        raise StorageError(f"{folder.result_file} could not be written: No space left on device")

    fake.behaves("die3")
    monkeypatch.setattr(RunFolder, "write_result", full)
    with start(ready_run, home) as child:
        result = child.result()
    assert (result.status, result.steps) == (Status.FAILED, 3)
    assert result.reason is not None
    assert "No space left" in result.reason
