"""Programs of a user's own, measured or traced in a process of its own.

The parent imports neither torch nor the user's code.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.config.extensions import names_a_function
from assay.config.run import OwnRows, ResolvedRun
from assay.errors import UsageError, first_line
from assay.hardware import Machine
from assay.launch.child import check_alive
from assay.records.evidence import ValueProof
from assay.records.own import UNTRAINABLE, OwnStep, TracedPeak
from assay.records.prediction import Predicted
from assay.records.status import Status

_CHILD = (sys.executable, "-P", "-m", "assay.worker.programs.own")
_TRACE_SECONDS = 60.0
"""Time after which a run goes on without its prediction."""


class Late(UsageError):
    """A program that did not answer in time."""


def measure_own_step(name: str, folder: Path | str | None, title: str, tokens: int | None, blocks: int) -> OwnStep:
    """Measure the step that the function `name` returns.

    Raises `UsageError` for a fault of the user's code, and `RuntimeError` if the process ends without an answer.
    """
    task = {"name": _named(name), "folder": _where(folder), "title": title, "tokens": tokens, "blocks": blocks}
    return OwnStep.model_validate_json(_answer(task))


def prove_own_step(name: str, against: str, folder: Path | str | None, numerics: str) -> ValueProof:
    """Compare the values of the step that `name` returns with those of its baseline `against`.

    Raises as `measure_own_step`.
    """
    task = {"name": _named(name), "against": _named(against), "folder": _where(folder), "numerics": numerics}
    return ValueProof.model_validate_json(_answer(task))


def trace_own_step(run: ResolvedRun, seconds: float | None = None) -> TracedPeak:
    """Trace the step of a run on fake tensors. Raises as `measure_own_step`, and `Late` after so many `seconds`."""
    return TracedPeak.model_validate_json(_answer({"run": run.model_dump(mode="json")}, seconds))


def inspect_own_model(run: ResolvedRun, machine: Machine) -> tuple[OwnRows | None, Predicted]:
    """Return what the rows of a user's batches have (None without such batches), and the peak by a trace of the step.

    A trace that fails stops no run: the prediction says why. Raises `UsageError` for a fault of the model or its
    batches.
    """
    traces = machine.device(run.device) == "cpu"
    task = {"run": run.model_dump(mode="json"), "trace": traces}
    lines: list[str] = []
    try:
        _into(lines, task, _TRACE_SECONDS)
    except (UsageError, RuntimeError, OSError) as error:
        if not lines and isinstance(error, UsageError) and not isinstance(error, Late):
            raise
        refused = first_line(error)
    else:
        refused = "a trace follows the kernels of a CPU, and this run uses others"
    rows = OwnRows.model_validate_json(lines[0]) if lines and lines[0] != "null" else None
    if len(lines) < 2:
        return rows, Predicted(refused=refused)
    if fault := json.loads(lines[1]).get(UNTRAINABLE):
        raise UsageError(f"{run.model.own} cannot be trained: {fault}")
    peak = TracedPeak.model_validate_json(lines[1])
    return rows, Predicted(tensors_peak_bytes=peak.peak_bytes, tensors_peak_instant=peak.instant, traced=True)


def _named(name: str) -> str:
    if not names_a_function(name):
        raise UsageError(f"{name!r} names no function; write module:function or file.py:function")
    return name


def _where(folder: Path | str | None) -> str:
    return str(Path.cwd() if folder is None else folder)


def _answer(task: Mapping[str, Any], seconds: float | None = None) -> str:
    lines: list[str] = []
    _into(lines, task, seconds)
    return lines[-1]


def _into(lines: list[str], task: Mapping[str, Any], seconds: float | None) -> None:
    """Add the lines of the answer, also those before a fault, which is raised."""
    given = f"{json.dumps(task)}\n"
    try:
        done = subprocess.run(_CHILD, input=given, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        lines += (said if isinstance(said, str) else said.decode()).splitlines()
        raise Late(f"the program gave no answer within {seconds:g} seconds") from error
    lines += done.stdout.strip().splitlines()
    check_alive(done.returncode, "the process of the program")
    last = (done.stderr.strip().splitlines() or ["it printed no message"])[-1]
    if done.returncode == Status.UNAVAILABLE.exit_code:
        raise UsageError(last)
    if done.returncode == 0 and not lines:
        raise UsageError("the program ended its process before it answered; leave out sys.exit and the like")
    if done.returncode != 0:
        raise RuntimeError(f"the process of the program ended with exit code {done.returncode}: {last}")
