"""The child that times steps: what it answers, and what it says of steps that it cannot time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.config import ResolvedRun, Spec
from assay.hardware.step_times import Answer, Task, Tasks
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
    times = step_times.answered(task(*(Spec(name=name) for name in names))).times
    assert times is not None
    assert times.depths == (1, 3)
    assert len(times.turns) >= 3
    assert all(shallow > 0 and deep > 0 for shallow, deep in times.turns)


def test_each_model_has_its_own_number_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ResolvedRun] = []

    def stepper(run: ResolvedRun, folder: Path) -> object:
        seen.append(run)
        return lambda: float(run.model.n_layer)

    monkeypatch.setattr(step_times, "_stepper", stepper)
    times = step_times.answered(task()).times
    assert [run.model.n_layer for run in seen] == [1, 3]
    assert times is not None
    assert set(times.turns) == {(1.0, 3.0)}
    assert len(times.turns) == 8  # equal turns need no more


def test_a_step_that_cannot_be_built_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: ResolvedRun, folder: Path) -> object:
        raise RuntimeError("no kernel for this\nand more")

    monkeypatch.setattr(step_times, "_stepper", broken)
    assert step_times.answered(task()) == Answer(digest="abc", refused="no kernel for this")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_process_that_dies_is_an_answer_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def dead(asked: Task) -> Answer:
        os._exit(11)

    monkeypatch.setattr(step_times, "answered", dead)
    printed: list[str] = []
    monkeypatch.setattr("builtins.print", lambda line, **options: printed.append(line))
    file = tmp_path / "tasks.json"
    file.write_text(Tasks(tasks=(task(),)).model_dump_json())
    assert step_times.main([str(file)]) == 0
    assert json.loads(printed[0])["refused"] == "its process died"


def test_it_ends_with_whoever_asked(tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    file.write_text(Tasks(tasks=(task(),)).model_dump_json())
    listening, held = os.pipe()
    with subprocess.Popen([*PROGRAM, str(file)], stdin=listening, stdout=subprocess.DEVNULL) as child:
        os.close(listening)
        os.close(held)
        assert child.wait(timeout=60) == PARENT_GONE
