"""The meter and the plain lines, fed with events by hand."""

import os
import subprocess
from typing import Any

import pytest

from assay.launch import progress
from assay.launch.progress import Meter, RunLines
from assay.records.events import event_of

RUN = {"event": "run", "run": "r1", "folder": "/f", "steps": 10, "tokens_per_step": 100}
EVALUATION = {"event": "evaluation", "step": 4, "perplexity": None, "bits_per_byte": None}


def step(index: int, seconds: float = 0.5, loss: float | None = 2.0) -> dict[str, Any]:
    return {"event": "step", "step": index, "loss": loss, "seconds": seconds, "tokens": 100}


def test_the_meter_reckons_with_recent_steps() -> None:
    meter = Meter()
    assert meter.figures() == ""
    meter.hear(event_of(RUN))
    for index in range(4):
        meter.hear(event_of(step(index)))
    assert meter.figures() == "loss 2.0000, 500 ms a step, 200 tokens/s, 3.00 s left"
    for index in range(4, 10):
        meter.hear(event_of(step(index, loss=None)))
    assert meter.figures() == "500 ms a step, 200 tokens/s"


def test_a_first_slow_step_foretells_nothing_and_is_outvoted_at_once() -> None:
    meter = Meter()
    meter.hear(event_of(RUN))
    meter.hear(event_of(step(0, seconds=100.0)))
    assert meter.figures() == "loss 2.0000, 1 min 40 s a step, 1 tokens/s"
    meter.hear(event_of(step(1)))
    assert meter.figures() == "loss 2.0000, 500 ms a step, 200 tokens/s, 4.00 s left"
    meter.hear(event_of(step(2, seconds=0.4)))
    assert meter.figures() == "loss 2.0000, 500 ms a step, 200 tokens/s, 3.50 s left"


def test_lines_are_few(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with RunLines() as lines:
        lines(RUN)
        for index in range(10):
            clock[0] += 1.0
            lines(step(index))
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split(",")[0] for line in said.err.splitlines()] == [
        "run r1: 10 steps of 100 tokens",
        "step 5/10",
        "step 10/10",
    ]


def test_progress_that_is_worth_a_line_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    lines = RunLines()
    lines({"event": "prepare", "message": "tokenizing", "fraction": 0.5})
    lines({"event": "start", "resumed_at": 4})
    lines({"event": "evidence", "optimization": "a", "observed": "0 of 3", "verdict": False})
    lines({**EVALUATION, "loss": 2.5})
    lines({**EVALUATION, "loss": None})
    lines({"event": "interrupting"})
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "continuing after step 4"
    assert said[1] == "a: 0 of 3 — it took no effect"
    assert said[2] == "after 4 steps: validation loss 2.5000"
    assert said[3].startswith("stopping")
    assert len(said) == 4


def test_a_phase_without_steps_shows_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    meter = Meter()
    meter.hear(event_of({**RUN, "eval_interval": 5}))
    meter.hear(event_of({"event": "phase", "name": "evaluation"}))
    clock[0] = 3.0
    assert meter.figures() == "for 3.00 s"
    meter.hear(event_of({"event": "progress", "done": 3, "total": 12}))
    assert meter.position == (3, 12)
    assert meter.figures() == "9.00 s left"
    clock[0] = 12.0
    meter.hear(event_of({"event": "phase", "name": "steady"}))
    assert meter.position == (0, 10)
    for index in range(4):
        meter.hear(event_of(step(index)))
    assert meter.figures() == "loss 2.0000, 500 ms a step, 200 tokens/s, 15.0 s left"
    meter.hear(event_of({"event": "phase", "name": "evaluation"}))
    clock[0] = 14.0
    assert meter.figures() == "loss 2.0000, 10.0 s left"


@pytest.mark.parametrize("phase", ["memory_pass", "gradients"])
def test_lines_tell_of_long_phases(
    phase: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    lines = RunLines()
    lines({"event": "phase", "name": phase})
    for done in range(3):
        clock[0] += 4.0
        lines({"event": "progress", "done": done, "total": 4})
    lines({**EVALUATION, "loss": 2.5, "standard_error": 0.01234})
    assert capsys.readouterr().err.splitlines() == [
        f"{phase.replace('_', ' ')} 1/4, 24.0 s left",
        "after 4 steps: validation loss 2.5000 ± 0.0123",
    ]


def test_the_meter_has_all_figures_of_a_step() -> None:
    meter = Meter()
    meter.hear(event_of({**RUN, "model_flops": 10**9, "peak_flops": 10**10, "pid": os.getpid()}))
    meter.hear(event_of({**step(0), "learning_rate": 3e-4, "log_gradient_norm": -1.0}))
    figures = meter.figures()
    known = "loss 2.0000, learning rate 0.0003, gradient norm 0.368, 500 ms a step, 200 tokens/s, MFU 20.0%, "
    assert figures.startswith(known)
    assert figures.endswith("iB")
    meter.hear(event_of({**step(1), "log_gradient_norm": None}))
    assert "gradient norm" not in meter.figures()
    assert meter.figures().endswith(" left")


def test_an_unknown_peak_has_no_share_and_a_process_that_has_ended_no_memory() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    meter = Meter()
    meter.hear(event_of({**RUN, "model_flops": 10**9, "peak_flops": None, "pid": ended.pid}))
    meter.hear(event_of(step(0)))
    assert meter.figures() == "loss 2.0000, 500 ms a step, 200 tokens/s"
