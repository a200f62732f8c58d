"""Times of steps with few blocks, measured in a process of its own before a prediction needs them.

Steps that were timed before are not timed again. Each answer is written at once, so an interrupt loses none.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from assay.config import ResolvedRun
from assay.config.home import Home
from assay.errors import UsageError
from assay.estimator import estimate
from assay.estimator.timing.step_time import affine, at_depth, digest
from assay.files import write_file
from assay.hardware import Machine
from assay.hardware.rates import known_machine, step_times_file, with_step_times
from assay.hardware.step_times import Answer, Task, Tasks, depths
from assay.launch.lifeline import helper

_TIME = (sys.executable, "-P", "-m", "assay.worker.programs.step_times")
BUDGET_SECONDS = 20.0
_SHARE_OF_MEMORY = 0.7
_UNEQUAL = "its work is not proportional to the number of blocks"
_LONGEST_SECONDS = 3.0
"""Seconds of the turns of one step, if the budget allows them."""


def calibrate(
    runs: Iterable[ResolvedRun],
    home: Home,
    threads: int | None = None,
    seconds: float = BUDGET_SECONDS,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, str]:
    """Time the steps of runs within so many seconds, and return the reasons of those that stay untimed, by stack.

    A step that has begun is finished, so it may take somewhat longer. `threads` is that of all runs. Raises
    `UsageError` if `home` cannot be written, and `StorageError` if the disk refuses.
    """
    machine = known_machine(home, threads)
    tasks: dict[str, tuple[Task, ResolvedRun]] = {}
    untimed: dict[str, str] = {}
    for run in runs:
        key, name = digest(run, machine.device(run.device)), stack_of(run)
        if key is None:
            untimed[name] = "several ranks are predicted by a roofline"
        elif key in tasks or _known(machine, key, run):
            continue
        elif reason := _reason_against(run, machine):
            untimed[name] = reason
        else:
            tasks[key] = (_task(key, run), run)
    for key, answer in _answers(tasks, machine, home, threads, seconds, tell):
        if answer.times is None:
            untimed[stack_of(tasks[key][1])] = answer.refused
    return untimed


def stack_of(run: ResolvedRun) -> str:
    """Return the optimizations of a run as a user writes them."""
    return "+".join(map(str, run.optimizations)) or "no optimization"


def _known(machine: Machine, key: str, run: ResolvedRun) -> bool:
    found = machine.step_times.get(key)
    return found is not None and found.serves(run.model.n_layer)


def _task(key: str, run: ResolvedRun) -> Task:
    runs = tuple(at_depth(run, layers) for layers in depths(run.model.n_layer))
    return Task(digest=key, runs=runs, seconds=_LONGEST_SECONDS)


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


def _answers(
    tasks: dict[str, tuple[Task, ResolvedRun]],
    machine: Machine,
    home: Home,
    threads: int | None,
    seconds: float,
    tell: Callable[[str], None],
) -> Iterator[tuple[str, Answer]]:
    """Have a process do the tasks, and keep each answer when it comes."""
    if not tasks:
        return
    home.ready()
    allowed = min(_LONGEST_SECONDS, seconds / 2 / len(tasks))
    asked = Tasks(tasks=tuple(task.model_copy(update={"seconds": allowed}) for task, _ in tasks.values()))
    began, left, why = time.monotonic(), list(tasks), f"the {seconds:g} seconds were over"
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "tasks.json"
        file.write_text(asked.model_dump_json())
        with helper([*_TIME, str(file)], errors=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            while left and time.monotonic() - began < seconds:
                place_in_row = f"{len(tasks) - len(left) + 1} of {len(tasks)}"
                tell(f"timing steps of few blocks, {place_in_row}: {stack_of(tasks[left[0]][1])}")
                line = process.stdout.readline()
                if not line:
                    why = "the process that times steps broke off"
                    break
                answer = Answer.model_validate_json(line)
                left.remove(answer.digest)
                _keep(answer, tasks[answer.digest][1], machine, home, threads)
                yield answer.digest, answer
    for key in left:
        yield key, Answer(digest=key, refused=why)


def _keep(answer: Answer, run: ResolvedRun, machine: Machine, home: Home, threads: int | None) -> None:
    if answer.times is None:
        return
    content = with_step_times(home, machine, machine.device(run.device), {answer.digest: answer.times}, threads)
    write_file(step_times_file(home), content)
