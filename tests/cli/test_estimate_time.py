"""The step time in `assay estimate`: of timed steps, by a roofline, or not predicted."""

from collections.abc import Iterator
from typing import Any

import pytest

from assay.hardware.step_times import Answer, StepTimes
from assay.launch import step_times
from cli.conftest import Assay

STEP = ("estimate", "demo", "model.n_layer=6", "model.vocab_size=64")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Budgets of the calibrations, each of which finds the same times; every second turn is disturbed."""
    budgets: list[float] = []

    def answers(
        tasks: Any, machine: Any, home: Any, threads: Any, seconds: float, tell: Any
    ) -> Iterator[tuple[str, Answer]]:
        for key, (task, run) in tasks.items():
            budgets.append(seconds)
            times = StepTimes(depths=(1, 3), turns=((0.02, 0.04),) * 9, others_share=0.5)
            answer = Answer(digest=task.digest, times=times)
            step_times._keep(answer, run, machine, home, threads)
            yield key, answer

    monkeypatch.setattr(step_times, "_answers", answers)
    return budgets


def test_it_is_that_of_timed_steps_with_its_margin_and_its_load(assay: Assay, timed: list[float]) -> None:
    said = assay(*STEP, "--calibrate", "--within=7")
    row = "step time, from timed steps of few blocks\t70.0 ms ± 8 %, timed while other programs worked"
    assert row in said.out
    assert row in assay(*STEP).out, "they are kept"
    assert row in assay(*STEP, "--calibrate").out
    assert timed == [7.0]
    assert assay(*STEP, "--json").value["step_seconds_margin"] == pytest.approx(0.08)


def test_a_step_that_cannot_be_timed_says_why(assay: Assay) -> None:
    said = assay(*STEP, "--calibrate", "--nproc=2", "--with=data_parallel")
    assert said.code == 0
    assert "the step was not timed: several ranks are predicted by a roofline" in said.err


@pytest.mark.parametrize("other", ["--inference", "--tokens=1B", "--nodes=2"])
def test_it_is_about_this_machine_only(assay: Assay, other: str) -> None:
    said = assay(*STEP, "--calibrate", other)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "--calibrate times steps on this machine" in said.err
