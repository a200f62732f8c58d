"""The step time in `assay estimate`: of timed steps, by a roofline, or not predicted."""

from typing import Any

import pytest

from assay.config import Home
from assay.hardware.rates import rates_file
from assay.hardware.step_times import CalibrationReply, StepTimes, Task
from assay.launch.step_times import Stopwatch
from cli.conftest import Assay

STEP = ("estimate", "demo", "model.n_layer=6", "model.vocab_size=64")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that each step may take; every step has the same times; every second turn is disturbed."""
    budgets: list[float] = []

    def answer(stopwatch: Any, task: Task) -> CalibrationReply:
        budgets.append(task.seconds)
        return CalibrationReply(
            digest=task.digest, times=StepTimes(depths=(1, 3), turns=((0.02, 0.04),) * 9, others_share=0.5)
        )

    monkeypatch.setattr(Stopwatch, "answer", answer)
    return budgets


def test_it_is_that_of_timed_steps_with_its_margin_and_its_load(assay: Assay, timed: list[float]) -> None:
    said = assay(*STEP, "--calibrate", "--within=5")
    row = "step time, from timed steps of few blocks\t70.0 ms ± 51 %, timed while other programs worked"
    assert row in said.out
    assert row in assay(*STEP).out, "they are kept"
    assert row in assay(*STEP, "--calibrate").out
    assert timed == [2.5]
    assert assay(*STEP, "--json").value["step_seconds_margin"] == pytest.approx((0.08**2 + 0.5**2) ** 0.5)


def test_a_step_that_cannot_be_timed_says_why(assay: Assay) -> None:
    said = assay(*STEP, "--calibrate", "--nproc=2", "--with=data_parallel")
    assert said.code == 0
    assert "the step was not timed: several ranks are predicted by a roofline" in said.err


def test_rates_that_are_damaged_are_named(assay: Assay, home: Home) -> None:
    assert "not predicted; `assay machine --threads 1` measures the rates that it needs" in assay(*STEP).out
    home.ready()
    rates_file(home).write_text('{"cpu": 1}')
    said = assay(*STEP).out
    assert f"not predicted: {rates_file(home)} is damaged or has no digest; `assay machine --threads 1`" in said


def test_it_is_about_this_machine_only(assay: Assay) -> None:
    said = assay(*STEP, "--calibrate", "--trace")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "--trace and --calibrate ask two questions" in said.err


def test_rows_are_timed_in_equal_shares(assay: Assay, timed: list[float]) -> None:
    said = assay(*STEP, "--calibrate", "--within=6", "--with=bf16_mixed", "--with=sdpa_attention")
    assert [line.split("\t")[4] for line in said.out.splitlines()[1:4]] == ["70.0 ms ± 51 %"] * 3
    assert timed == [1.0] * 3
