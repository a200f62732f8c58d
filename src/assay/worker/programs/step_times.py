"""The process that times steps of few blocks: ``python -m assay.worker.programs.step_times FILE``.

The file has tasks as JSON: for each a digest, runs at one or two depths, and the seconds that it may take. For each
task one line of JSON is printed: the digest with step times, or with the reason why there are none.

Torch is imported once. Each task then has a process of its own, forked before any thread of torch exists, because
techniques change settings of the whole process. Where a system cannot fork, tasks follow each other in one process.
The steps are those of a run: the same allocator settings, deterministic kernels, probes and random batches. The models
of the two depths train in turns, so that a change of the machine's speed moves both.
"""

import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from assay.config.run import ResolvedRun
from assay.errors import UsageError, first_line
from assay.hardware.step_times import Answer, StepTimes, Task, Tasks
from assay.optimizations import optimizations_of
from assay.worker.processes.channel import PARENT_GONE, when_closed

_SETTLING = 2
"""Steps of each model that are not timed."""
_FEWEST, _ENOUGH, _MOST = 3, 8, 40
"""Numbers of turns: always; before the spread is looked at; at most."""
_STEADY = 0.01
"""Relative standard error of the median at which no further turn is needed."""


def main(arguments: Sequence[str]) -> int:
    """Do the tasks of a file, and print an answer for each."""
    tasks = Tasks.model_validate_json(Path(arguments[0]).read_bytes()).tasks
    import torch._dynamo  # noqa: F401  # it is imported by the first step in any case, here once for all

    import assay.worker.build  # noqa: F401

    for task in tasks:
        line = _in_fork(partial(answered, task)) if hasattr(os, "fork") else answered(task).model_dump_json()
        print(line or Answer(digest=task.digest, refused="its process died").model_dump_json(), flush=True)
    return 0


def _in_fork(work: Callable[[], Answer]) -> str:
    """Return the JSON of what `work` returns in a forked process; empty if that process died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        when_closed(0, lambda: os._exit(PARENT_GONE))
        with contextlib.suppress(BaseException):
            os.write(writing, work().model_dump_json().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        line = stream.read()
    os.waitpid(child, 0)
    return line


def answered(task: Task) -> Answer:
    """Time the steps of a task; a fault of its run is the reason why it has no times."""
    try:
        with tempfile.TemporaryDirectory() as place:
            return Answer(digest=task.digest, times=_times(task, Path(place)))
    except (UsageError, RuntimeError, MemoryError) as error:
        return Answer(digest=task.digest, refused=first_line(error))


def _times(task: Task, place: Path) -> StepTimes:
    from assay.instruments.memory.process import keep_freed_memory, return_freed_memory
    from assay.instruments.rates.agreement import OthersShare

    return_freed_memory()
    steps = [_stepper(run, place / str(run.model.n_layer)) for run in task.runs]
    for _ in range(_SETTLING):
        if sum(step() for step in steps) > task.seconds / _FEWEST:
            break  # a slow step is settled after its first one, and its turns take all the time that there is
    keep_freed_memory()
    for step in steps:
        step()
    turns: list[tuple[float, ...]] = []
    began = time.perf_counter()
    with OthersShare() as others:
        while not _enough(turns, time.perf_counter() - began, task.seconds):
            turns.append(tuple(step() for step in steps))
    return StepTimes(
        depths=tuple(run.model.n_layer for run in task.runs), turns=tuple(turns), others_share=others.share
    )


def _stepper(run: ResolvedRun, folder: Path) -> Callable[[], float]:
    """Build the step of a run on random tokens; return a function that does the next step and returns its seconds."""
    from assay.data import open_prepared
    from assay.data.random_tokens import write_random
    from assay.parallel.ranks import ALONE
    from assay.training.loop import train_step, train_until_updated
    from assay.training.probes import ActivationNorms
    from assay.worker.build import build_step, device_of, leave_imports_out_of_collections, settle_torch

    device = device_of(run)
    settle_torch(run, device)
    leave_imports_out_of_collections()
    assert run.model.vocab_size is not None
    data = open_prepared(write_random(folder, run.model.vocab_size, 2**20))
    step = build_step(run, data, device, optimizations_of(run), ALONE, fresh=True)
    probes, indices = ActivationNorms(step), itertools.count(1)
    train_until_updated(step, 0, probes)
    return lambda: train_step(step, next(indices), probes).seconds


def _enough(turns: Sequence[tuple[float, ...]], spent: float, allowed: float) -> bool:
    if len(turns) < _FEWEST:
        return False
    if len(turns) >= _MOST or spent > allowed:
        return True
    return len(turns) >= _ENOUGH and max(map(_error, zip(*turns, strict=True))) < _STEADY


def _error(seconds: Sequence[float]) -> float:
    """Relative standard error of the median."""
    middle = statistics.median(seconds)
    spread = statistics.median(abs(one - middle) for one in seconds)
    return float(1.86 * spread / len(seconds) ** 0.5 / middle)


if __name__ == "__main__":
    when_closed(0, lambda: os._exit(PARENT_GONE))
    raise SystemExit(main(sys.argv[1:]))
