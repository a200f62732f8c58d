"""A measuring process that is killed is no fault of assay: every parent says so, as for a run."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import ProcessKilled
from assay.launch import anatomy, gpu_peak, own, rates, step_times
from support.children import make_ready

KILLED = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")


def of_rates(home: Home) -> None:
    rates.measured_machine(home)


def of_anatomy(home: Home) -> None:
    anatomy._measured(make_ready(home), [], home)


def of_a_program(home: Home) -> None:
    own.trace_own_step(make_ready(home).run)


def of_a_trace(home: Home) -> None:
    gpu_peak._answer(sys.executable, {}, gpu_peak._task(make_ready(home).run, "h100", {}))


def of_step_times(home: Home) -> None:
    step_times.calibrate([make_ready(home).run], home)


@pytest.mark.parametrize("measure", [of_rates, of_anatomy, of_a_program, of_a_trace, of_step_times])
def test_its_signal_is_said(measure: Callable[[Home], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_MEASURE", KILLED)
    monkeypatch.setattr(anatomy, "_CHILD", KILLED)
    monkeypatch.setattr(own, "_CHILD", KILLED)
    monkeypatch.setattr(gpu_peak, "_PROGRAM", KILLED[1:])
    monkeypatch.setattr(step_times, "_TIME", KILLED)
    with pytest.raises(ProcessKilled, match="was killed by signal 9, perhaps by the system because memory ran out"):
        measure(Home(tmp_path / "home").ready())
