"""The measured child as a real process: what it says, what it leaves behind, and how it ends."""

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from assay.data import Prepared
from assay.errors import START_AGAIN, StorageError, UsageError
from assay.optimizations import Unavailable
from assay.records.run import Branch
from assay.records.status import Status
from assay.store import history
from assay.store.result import compose, settle
from assay.store.run_folder import RunFolder
from assay.training.stops import Diverged, TargetReached, WrongValues
from assay.worker.main import conclude
from support.forked import Forked
from support.runs import run_folder
from support.workers import Process, finished

LONG = {"steps": 40, "checkpoint_interval": 7, "eval_interval": 10}
NOISY = {"model": {"dropout": 0.1}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, corpus: Prepared) -> RunFolder:
    """A run with dropout that nobody disturbed."""
    place, last = tmp_path_factory.mktemp("whole") / "run", max(os.sched_getaffinity(0))
    folder = run_folder(place, corpus, {**LONG, "measure_memory": True}, **NOISY, cores=[last])
    finished(folder)
    return folder


def test_a_run_leaves_a_whole_result(whole: RunFolder, corpus: Prepared) -> None:
    result = whole.result()
    assert result is not None
    assert (result.status, result.reason) == (Status.DONE, None)
    assert (result.steps, result.tokens) == (40, 40 * 64)
    assert result.parameters == 256 * 16 + 16 * 16 + 2 * (12 * 16 * 16 + 13 * 16) + 2 * 16
    assert result.train_loss is not None
    assert result.val_loss is not None
    assert 1 < result.train_loss < 6
    assert result.step_seconds is not None
    assert result.tokens_per_second == pytest.approx(64 / result.step_seconds.median)
    assert result.step_seconds.count == 28
    # In one drawn step of a block the heap is counted, and the next one settles.
    assert sorted(block.steps for block in result.blocks) == [4, 6, 6, 6, 6]
    assert all(block.process_peak_bytes and block.tokens == block.steps * 64 for block in result.blocks)
    assert result.memory.process_peak_bytes == min(block.process_peak_bytes or 0 for block in result.blocks)
    assert result.environment is not None
    assert (result.environment.threads, result.environment.corpus_digest) == (1, corpus.digest)
    assert (result.environment.cores, result.environment.pinned) == (1, (max(os.sched_getaffinity(0)),))


def test_its_phases_are_named_and_sum_to_the_wall_clock(whole: RunFolder) -> None:
    result = whole.result()
    assert result is not None
    phases = {"import", "build", "first_step", "trace", "warmup", "settling", "steady", "evaluation", "checkpoint"}
    phases |= {"memory_pass"}
    assert phases <= set(result.phase_seconds)
    assert phases <= set(result.memory.phases)
    start = next(event for event in whole.events() if event.event == "start")
    assert start.time is not None
    began = start.time - sum(result.phase_seconds[name] for name in ("import", "waiting", "build"))
    wall = whole.result_file.stat().st_mtime - began
    assert sum(result.phase_seconds.values()) == pytest.approx(wall, abs=0.5)
    steady = sum(block.seconds for block in result.blocks)
    assert steady <= result.phase_seconds["steady"]


def test_its_events_tell_the_same_story(whole: RunFolder) -> None:
    events, result = whole.events(), whole.result()
    assert result is not None
    steps = history.steps(events)
    assert [step.step for step in steps] == list(range(40))
    phases = [step.phase for step in steps]
    (heap,) = [index for index, phase in enumerate(phases) if phase == "heap"]
    block = (heap - 5) // 7
    assert phases[:5] == ["first_step", "trace", *["warmup"] * 3]
    for number in range(5):
        own = phases[5 + 7 * number : 12 + 7 * number]
        assert (own[0], own.count("steady")) == ("settling", 4 if number == block else 6)
    assert all(len(step.activation_norms) == 2 and step.tokens == 64 for step in steps)
    assert steps[-1].loss == result.train_loss
    assert [one.step for one in history.evaluations(events)] == [10, 20, 30, 40]
    assert [event.step for event in events if event.event == "checkpoint"] == [7, 14, 21, 28, 35, 40]
    assert sorted(path.name for path in whole.checkpoints.iterdir()) == ["step-00000035", "step-00000040"]


def test_a_log_gives_the_figures_that_the_process_recorded(whole: RunFolder) -> None:
    result, composed = whole.result(), compose(whole, Status.DONE, None)
    assert result is not None
    memory_only = {
        "gradients",
        "parameters",
        "phase_seconds",
        "memory",
        "ranks",
        "environment",
        "proven_until",
        "extra",
    }
    told = composed.model_dump()
    for name, figure in result.model_dump().items():
        assert name in memory_only or told[name] == figure, name


def weights_and_state(folder: RunFolder) -> list[bytes]:
    place = folder.checkpoints / "step-00000040"
    return [(place / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]


def losses(folder: RunFolder) -> list[object]:
    steps = history.steps(folder.events())
    return [(step.loss, step.log_gradient_norm, step.activation_norms) for step in steps]


def test_a_run_that_was_killed_goes_on_bit_for_bit(whole: RunFolder, corpus: Prepared, tmp_path: Path) -> None:
    last = random.randrange(1, 39)
    folder = run_folder(tmp_path / "run", corpus, LONG, **NOISY)
    with Process(folder, start=Forked) as process:
        process.until("step", step=last)
        process.child.send_signal(signal.SIGKILL)
        assert process.end()[0] == -signal.SIGKILL
    assert folder.result() is None
    with folder.events_file.open("ab") as stream:
        stream.write(b'{"event": "step", "st')  # a kill in the middle of a line
    _, result = finished(folder)
    resumed_at = [event.resumed_at for event in folder.events() if event.event == "start"][-1]
    assert resumed_at % 7 == 0
    assert (result.status, result.steps, result.tokens) == (Status.DONE, 40, 40 * 64), f"killed after step {last}"
    assert losses(folder) == losses(whole), f"killed after step {last}, resumed at {resumed_at}"
    assert weights_and_state(folder) == weights_and_state(whole), f"killed after step {last}, resumed at {resumed_at}"


@pytest.mark.slow
def test_a_branch_is_bit_equal_to_the_run_that_decays_alone(corpus: Prepared, tmp_path: Path) -> None:
    shared, decay = {"eval_interval": 10, "warmup_steps": 3}, {"schedule": "wsd", "decay_fraction": 0.5, "steps": 24}
    own = {**NOISY, "optimizations": "fused_adamw"}
    alone = run_folder(tmp_path / "alone", corpus, {**shared, **decay}, **own)
    stable = {**shared, "schedule": "constant", "keep_steps": [12], "steps": 14}
    trunk = run_folder(tmp_path / "trunk", corpus, stable, **own)
    whole, _ = finished(alone)[1], finished(trunk)
    branch = run_folder(tmp_path / "branch", corpus, {**shared, **decay}, **own)
    branch.adopt_checkpoint(trunk.saved_steps()[12])
    branch.prepare(branch.spec().model_copy(update={"branch": Branch(run="trunk", step=12)}))
    _, result = finished(branch)
    assert (result.status, result.steps, result.tokens) == (Status.DONE, 24, whole.tokens)
    assert (result.train_loss, result.val_loss) == (whole.train_loss, whole.val_loss)
    assert losses(branch) == losses(alone)[12:]
    assert result.branch == Branch(run="trunk", step=12)
    assert result.values is not None
    assert result.values.verdict
    assert result.notes[0].startswith("branched from the run trunk after 12 steps")


def test_one_whose_figures_are_read_late_has_them_all_where_it_was_saved(
    whole: RunFolder, corpus: Prepared, tmp_path: Path
) -> None:
    folder = run_folder(tmp_path / "run", corpus, LONG, **NOISY, optimizations="deferred_metrics:every=5")
    with Process(folder, start=Forked) as process:
        process.until("checkpoint", step=random.choice([14, 21]))
        process.child.send_signal(signal.SIGKILL)
        assert process.end()[0] == -signal.SIGKILL
    _, result = finished(folder)
    assert result.status is Status.DONE
    assert losses(folder) == losses(whole)
    assert weights_and_state(folder) == weights_and_state(whole)
    (evidence,) = result.evidence
    assert evidence.verdict, evidence.observed


def test_an_interrupted_run_saves_itself_and_goes_on(whole: RunFolder, corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {**LONG, "checkpoint_interval": 0}, **NOISY)
    with Process(folder, start=Forked) as process:
        process.until("step", step=5)
        process.child.send_signal(signal.SIGINT)
        assert process.end()[0] == 130
    first = folder.result()
    assert first is not None
    assert first.status is Status.INTERRUPTED
    assert first.reason == f"interrupted after {first.steps} steps"
    assert [path.name for path in folder.checkpoints.iterdir()] == [f"step-{first.steps:08d}"]
    folder.prepare(folder.spec())
    _, result = finished(folder)
    assert result.steps == 40
    assert losses(folder) == losses(whole)
    assert weights_and_state(folder) == weights_and_state(whole)


def test_a_run_that_only_had_to_end_keeps_what_it_measured(whole: RunFolder) -> None:
    before = whole.result()
    events = whole.events_file.read_bytes()
    whole.prepare(whole.spec())
    _, after = finished(whole)
    assert before is not None
    assert (after.steps, after.val_loss, after.train_loss) == (40, before.val_loss, before.train_loss)
    assert after.step_seconds == before.step_seconds
    assert after.data_wait_share == pytest.approx(before.data_wait_share)
    assert after.blocks == before.blocks
    assert whole.events_file.read_bytes().startswith(events)


def test_memory_that_runs_out_is_a_result(corpus: Prepared, tmp_path: Path) -> None:
    def little_memory() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (3 * 2**30, 3 * 2**30))

    folder = run_folder(tmp_path / "run", corpus, {"steps": 3}, model={"context_length": 2000, "n_head": 16})
    wide = folder.spec().config
    wide = wide.model_copy(update={"training": wide.training.model_copy(update={"batch_size": 64})})
    folder.prepare(folder.spec().model_copy(update={"config": wide}))
    code, result = finished(folder, start=subprocess.Popen, preexec_fn=little_memory)
    assert (code, result.status, result.steps) == (3, Status.OUT_OF_MEMORY, 0)
    assert result.reason is not None
    assert result.reason.startswith("out of memory in the phase first_step: ")


def test_with_turns_it_waits_for_each(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 12})
    with Process(folder, "--turns", "3", start=Forked) as process:
        process.until("yield", next="start")
        time.sleep(0.3)
        assert not folder.events()
        process.go()
        for block in range(3):
            process.until("yield", next="block")
            before = len(history.steps(folder.events()))
            time.sleep(0.2)
            assert len(history.steps(folder.events())) == before
            process.go()
            assert process.until("block")["steps"] == 1, block
        for upcoming in ("finish", "repeat"):
            process.until("yield", next=upcoming)
            process.go()
        code, _ = process.end()
    result = folder.result()
    assert result is not None
    assert (code, result.status, len(result.blocks)) == (0, Status.DONE, 3)
    assert result.phase_seconds["waiting"] > 0.8
    assert not [event for event in folder.events() if event.event == "yield"]


def test_a_run_by_itself_counts_the_heap(corpus: Prepared, tmp_path: Path) -> None:
    code, result = finished(run_folder(tmp_path / "run", corpus, {"steps": 4, "measure_memory": True}), start=Forked)
    assert (code, result.status) == (0, Status.DONE)
    assert result.memory.heap_peak_bytes > 0
    assert result.memory.allocations > 0


def test_a_cell_without_times_waits_for_nothing_and_counts_no_heap(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 4, "measure_memory": True})
    code, result = finished(folder, "--turns", "0", start=Forked)
    assert (code, result.status) == (0, Status.DONE)
    assert (result.memory.heap_peak_bytes, result.memory.allocations) == (None, None)
    assert result.memory.tensors_peak_bytes > 0
    assert "cell without times" in result.missing["memory.heap_peak_bytes"]


def test_one_that_waits_can_be_interrupted(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 12})
    with Process(folder, "--turns", "3", start=Forked) as process:
        process.until("yield", next="start")
        process.child.send_signal(signal.SIGTERM)
        assert process.end()[0] == 130
    result = folder.result()
    assert result is not None
    assert (result.status, result.steps) == (Status.INTERRUPTED, 0)


def test_it_ends_when_its_parent_is_gone(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 1_000_000})
    with Process(folder, start=Forked) as process:
        process.until("step", step=3)
        assert process.child.stdin is not None
        process.child.stdin.close()
        mark = time.monotonic()
        assert process.child.wait(timeout=10) == 3
        assert time.monotonic() - mark < 2
    assert folder.result() is None


def test_earlier_steps_stay_on_record_when_going_on_is_refused(whole: RunFolder, tmp_path: Path) -> None:
    folder, before = RunFolder(shutil.copytree(whole.path, tmp_path / "run")), whole.result()
    for place in folder.checkpoints.iterdir():
        (place / "model.safetensors").write_bytes(b"")
    folder.prepare(folder.spec())
    code, after = finished(folder)
    assert (code, after.status) == (1, Status.FAILED)
    assert after.reason == f"every checkpoint in {folder.checkpoints} is damaged; {START_AGAIN}"
    assert before is not None
    for name in ("steps", "tokens", "train_loss", "val_loss", "step_seconds", "blocks", "evidence"):
        assert getattr(after, name) == getattr(before, name), name
    assert "build" in after.phase_seconds
    assert folder.stands
    assert settle(folder) == before == folder.result(), "the attempt trained no step, so the earlier result stands"


def raising(error: Exception) -> tuple[Status, str | None]:
    def work() -> None:
        raise error

    return conclude(work, lambda: "in the phase steady")


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (TargetReached("target loss reached"), Status.DONE, "target loss reached"),
        (Diverged("diverged at step 1"), Status.DIVERGED, "diverged at step 1"),
        (WrongValues("the loss is off"), Status.WRONG_VALUES, "the loss is off"),
        (Unavailable("no such device"), Status.UNAVAILABLE, "no such device"),
        (UsageError("bad input"), Status.FAILED, "bad input"),
        (MemoryError(), Status.OUT_OF_MEMORY, "out of memory in the phase steady: no memory was left"),
        (StorageError("the disk is full: x"), Status.FAILED, "the disk is full: x"),
        (OSError(28, "No space left on device"), Status.FAILED, "the disk is full: [Errno 28] No space left on device"),
    ],
)
def test_every_way_to_end_is_a_status_with_a_reason(error: Exception, status: Status, reason: str) -> None:
    assert raising(error) == (status, reason)


def test_a_fault_of_the_users_code_has_its_kind_and_its_place_and_one_of_ours_its_words() -> None:
    status, reason = raising(ZeroDivisionError("division by zero"))
    assert status is Status.FAILED
    assert re.fullmatch(r"ZeroDivisionError: division by zero \(test_worker\.py, line \d+\)", str(reason))
    ours = partial(RunFolder, None)  # type: ignore[arg-type]
    assert conclude(ours, lambda: "")[1] == "expected str, bytes or os.PathLike object, not NoneType"


def test_wrong_values_are_not_resumed() -> None:
    assert (Status.WRONG_VALUES.exit_code, Status.WRONG_VALUES.resumable) == (3, False)


def test_an_unexpected_error_leaves_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    raising(ZeroDivisionError("division by zero"))
    assert "ZeroDivisionError" in capfd.readouterr().err
    raising(UsageError("bad input"))
    assert "Traceback" not in capfd.readouterr().err


def test_the_value_check_changes_no_figure_of_memory_or_loss(corpus: Prepared, tmp_path: Path) -> None:
    training = {"steps": 6, "measure_memory": True}
    with_check, without = (
        finished(
            run_folder(
                tmp_path / f"checked-{checked}",
                corpus,
                {**training, "check_values": checked},
                optimizations="sdpa_attention+bf16_mixed",
            )
        )[1]
        for checked in (True, False)
    )
    assert with_check.values is not None
    assert with_check.values.verdict
    assert without.values is None or without.values.unchecked
    assert with_check.memory.tensors_peak_bytes == without.memory.tensors_peak_bytes
    assert with_check.memory.tensors_peak_instant == without.memory.tensors_peak_instant
    assert (with_check.train_loss, with_check.val_loss) == (without.train_loss, without.val_loss)
