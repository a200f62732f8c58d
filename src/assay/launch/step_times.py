"""Times of steps with few blocks, measured in a process of its own before a prediction needs them.

Steps that were timed before are not timed again. Each answer is written at once, so an interrupt loses none.
"""

import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

from assay.config import ResolvedRun
from assay.config.home import Home
from assay.data.progress import Progress, silent
from assay.errors import UsageError
from assay.estimator import estimate
from assay.estimator.timing.step_time import affine, at_depth, digest
from assay.files import write_file
from assay.hardware import Machine
from assay.hardware.rates import known_machine, step_times_file, with_step_times
from assay.hardware.step_times import CalibrationReply, Task, depths
from assay.launch.child import check_alive
from assay.launch.rates import set_aside_damaged

_TIME = (sys.executable, "-P", "-m", "assay.worker.programs.step_times")
BUDGET_SECONDS = 20.0
_SHARE_OF_MEMORY = 0.7
_UNEQUAL = "its work is not proportional to the number of blocks"
_BROKE_OFF = "the process that times steps broke off"
_LONGEST_SECONDS = 3.0
"""Seconds of the turns of one step, if the budget allows them."""


def calibrate(
    runs: Iterable[ResolvedRun],
    home: Home,
    threads: int | None = None,
    seconds: float = BUDGET_SECONDS,
    tell: Progress = silent,
) -> dict[str, str]:
    """Time the steps of runs within so many seconds, and return the reasons of those that stay untimed, by stack.

    A step that has begun is finished, so it may take somewhat longer. `threads` is that of all runs. Raises
    `UsageError` if `home` cannot be written, and `StorageError` if the disk refuses.
    """
    set_aside_damaged(home, lambda text: tell(text, None))
    with Stopwatch(home, threads) as stopwatch:
        untimed, tasks = stopwatch.sorted_out(runs)
        allowed = min(_LONGEST_SECONDS, seconds / 2 / max(1, len(tasks)))
        began = time.monotonic()
        for place, run in enumerate(tasks):
            if time.monotonic() - began >= seconds:
                untimed[stack_of(run)] = f"the {seconds:g} seconds were over"
                continue
            tell(f"timing steps of few blocks: {stack_of(run)}", place / len(tasks))
            if reason := stopwatch.time(run, allowed):
                untimed[stack_of(run)] = reason
    return untimed


def stack_of(run: ResolvedRun) -> str:
    """Return the optimizations of a run as a user writes them."""
    return "+".join(map(str, run.optimizations)) or "no optimization"


class Stopwatch:
    """A process that times steps, one run after the other. It is started by the first one, and ends with the block."""

    def __init__(self, home: Home, threads: int | None = None) -> None:
        self._home, self._threads = home, threads
        self._machine = known_machine(home, threads)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.__exit__(kind, error, at)

    def sorted_out(self, runs: Iterable[ResolvedRun]) -> tuple[dict[str, str], list[ResolvedRun]]:
        """Return why some runs cannot be timed, by stack, and one run for each step that is not known."""
        untimed: dict[str, str] = {}
        tasks: dict[str, ResolvedRun] = {}
        for run in runs:
            key = digest(run, self._machine.device(run.device))
            if key is None:
                untimed[stack_of(run)] = "several ranks are predicted by a roofline"
            elif key in tasks or _known(self._machine, key, run):
                continue
            elif reason := _reason_against(run, self._machine):
                untimed[stack_of(run)] = reason
            else:
                tasks[key] = run
        return untimed, list(tasks.values())

    def time(self, run: ResolvedRun, seconds: float) -> str:
        """Time the step of a run in turns of so many seconds, and keep it. Return why it has no times, or nothing.

        The run is one that `sorted_out` returned. Raises `UsageError` if the home cannot be written.
        """
        answer = self.answer(_task(run, self._machine, seconds))
        _keep(answer, run, self._machine, self._home, self._threads)
        return answer.refused

    def answer(self, task: Task) -> CalibrationReply:
        """Have the process do a task, and return its answer; nothing is kept."""
        if self._process is None:
            self._home.ready()
            self._process = _started(self._home)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with suppress(BrokenPipeError):
            if not self._process.stdin.closed:
                self._process.stdin.write(f"{task.model_dump_json()}\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
        if line:
            return CalibrationReply.model_validate_json(line)
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        check_alive(self._process.wait(), "the process that times steps")
        return CalibrationReply(digest=task.digest, refused=_BROKE_OFF)


def _started(home: Home) -> "subprocess.Popen[str]":
    """Start the process that times steps. It ends when its standard input closes, so when this one ends in any way."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        _TIME, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=home.environment()
    )


def _known(machine: Machine, key: str, run: ResolvedRun) -> bool:
    found = machine.step_times.get(key)
    return found is not None and found.serves(run.model.n_layer)


def _task(run: ResolvedRun, machine: Machine, seconds: float) -> Task:
    key = digest(run, machine.device(run.device))
    assert key is not None
    return Task(digest=key, runs=tuple(at_depth(run, layers) for layers in depths(run.model.n_layer)), seconds=seconds)


def _reason_against(run: ResolvedRun, machine: Machine) -> str:
    """Return why a step cannot be timed at small depths; empty if it can."""
    try:
        whole = estimate(run, machine)
    except UsageError as error:
        return str(error)
    try:
        small = [estimate(at_depth(run, layers), machine) for layers in depths(run.model.n_layer)]
    except UsageError as error:
        return f"{_UNEQUAL}: {error}"
    if not affine(whole.cost, tuple(one.cost for one in small), run.model.n_layer):
        return _UNEQUAL
    if sum(one.timeline.peak.nbytes for one in small) > _SHARE_OF_MEMORY * machine.memory_bytes:
        return "two models of few blocks do not fit into memory beside each other"
    return ""


def _keep(answer: CalibrationReply, run: ResolvedRun, machine: Machine, home: Home, threads: int | None) -> None:
    if answer.times is None:
        return
    content = with_step_times(home, machine, machine.device(run.device), {answer.digest: answer.times}, threads)
    write_file(step_times_file(home), content)
