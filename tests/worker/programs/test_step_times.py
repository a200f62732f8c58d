"""The child that times steps: what it answers, and what it says of steps that it cannot time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from assay.config import ResolvedRun, Spec
from assay.hardware.step_times import CalibrationReply, Task
from assay.worker.processes.channel import PARENT_GONE
from assay.worker.programs import step_times
from support.runs import run_with

PROGRAM = (sys.executable, "-m", "assay.worker.programs.step_times")


def task(*specs: Spec, depths: tuple[int, ...] = (1, 3), **changes: object) -> Task:
    base = run_with(*specs, **changes)
    runs = tuple(
        base.model_copy(update={"model": base.model.model_copy(update={"n_layer": layers})}) for layers in depths
    )
    return Task(digest="abc", runs=runs, seconds=0.2)


@pytest.mark.parametrize("names", [(), ("bf16_mixed", "activation_checkpointing"), ("fp16_mixed",)])
def test_steps_of_both_depths_are_timed_in_turns(names: tuple[str, ...]) -> None:
    times = step_times.answer_task(task(*(Spec(name=name) for name in names))).times
    assert times is not None
    assert times.depths == (1, 3)
    assert times.apart(5) is None
    assert len(times.turns) >= 3
    assert all(shallow > 0 and deep > 0 for shallow, deep in times.turns)


def test_each_model_has_its_own_number_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "_stepper", lambda run, folder: lambda: (float(run.model.n_layer),))
    times = step_times.answer_task(task()).times
    assert times is not None
    assert times.depths == (1, 3)
    assert set(times.turns) == {(1.0, 3.0)}
    assert len(times.turns) == 8  # equal turns need no more


def test_an_accelerators_steps_have_the_times_of_host_and_device_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def stepper(run: ResolvedRun, folder: Path) -> object:
        return lambda: (float(run.model.n_layer), 0.5, 0.25 * run.model.n_layer)

    monkeypatch.setattr(step_times, "_stepper", stepper)
    times = step_times.answer_task(task()).times
    assert times is not None
    assert (times.seconds(5), times.apart(5)) == (5.0, (0.5, 1.25))
    assert (
        CalibrationReply.model_validate_json(CalibrationReply(digest="abc", times=times).model_dump_json()).times
        == times
    )


@pytest.mark.gpu
@pytest.mark.device_values("events of the device are timed")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_device_is_timed_by_its_own_events() -> None:
    """The program forks before CUDA starts, which this process cannot: it has asked for devices."""
    found = task()
    on_cuda = tuple(one.model_copy(update={"device": "cuda"}) for one in found.runs)
    with subprocess.Popen(PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(found.model_copy(update={"runs": on_cuda}).model_dump_json() + "\n")
        program.stdin.flush()
        answer = CalibrationReply.model_validate_json(program.stdout.readline())
    assert answer.times is not None, answer.refused
    apart = answer.times.apart(5)
    assert apart is not None
    assert 0 < min(apart) <= max(apart) <= 1.2 * answer.times.seconds(5)


@pytest.mark.parametrize(("seconds", "timed"), [(0.05, 3), (0.5, 1)])
def test_the_first_step_of_a_turn_is_not_timed(
    monkeypatch: pytest.MonkeyPatch, seconds: float, timed: int, tmp_path: Path
) -> None:
    """It finds the caches as the other model left them."""
    steps = [9.0, 9.0, seconds, *(seconds + 0.001 * number for number in range(timed))]
    left = iter([(one,) for one in steps])
    monkeypatch.setattr(step_times, "_stepper", lambda run, folder: left.__next__)
    turn = step_times._settled(run_with(), tmp_path)
    assert turn() == (pytest.approx(seconds + 0.001 * (timed // 2)),)
    assert next(left, "all done") == "all done"


def broken(run: ResolvedRun, folder: Path) -> object:
    raise RuntimeError("no kernel for this\nand more")


def dead(run: ResolvedRun, folder: Path) -> object:
    os._exit(11)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize(("fault", "reason"), [(broken, "no kernel for this"), (dead, "its process died")])
def test_a_step_that_cannot_be_done_has_a_reason(monkeypatch: pytest.MonkeyPatch, fault: object, reason: str) -> None:
    monkeypatch.setattr(step_times, "_stepper", fault)
    assert step_times.answer_task(task()) == CalibrationReply(digest="abc", refused=reason)


def test_where_a_system_cannot_fork_the_models_are_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    times = step_times.answer_task(task()).times
    assert times is not None
    assert times.depths == (1, 3)
    assert min(min(turn) for turn in times.turns) > 0


def test_an_answer_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "_stepper", lambda run, folder: lambda: 0.5)
    printed: list[str] = []
    monkeypatch.setattr("builtins.print", lambda line, **options: printed.append(line))
    assert step_times.main([f"{task().model_dump_json()}\n"] * 2) == 0
    assert [json.loads(line)["digest"] for line in printed] == ["abc", "abc"]


def test_it_ends_with_whoever_asked_even_amid_a_task() -> None:
    with subprocess.Popen(PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as child:
        assert child.stdin is not None
        child.stdin.write(f"{task().model_copy(update={'seconds': 600.0}).model_dump_json()}\n")
        child.stdin.close()
        assert child.wait(timeout=60) == PARENT_GONE
