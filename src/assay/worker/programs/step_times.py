"""The process that times steps of few blocks: ``python -m assay.worker.programs.step_times``.

Each line of standard input is a task as JSON: a digest, runs at one or two depths, and the seconds that it may take.
For each task one line of JSON is printed: the digest with step times, or with the reason why there are none. The
process ends when its standard input is closed, even amid a task.

Torch is imported once. Each depth of each task then has a process of its own, forked before any thread of torch exists.
Techniques change settings of a whole process, and a compiler treats a second model otherwise than the first. Where a
system cannot fork, both models are in this process. The steps are those of a run: the same allocator settings,
deterministic kernels and probes, on random tokens. The depths take turns, so that a change of the machine's speed moves
both. The first step of a turn finds the caches as the other model left them, so it is not timed.
"""

import contextlib
import itertools
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from assay.config.run import ResolvedRun
from assay.errors import UsageError, first_line
from assay.files import scratch
from assay.hardware.step_times import CalibrationReply, StepTimes, Task, relative_error
from assay.optimizations import optimizations_of
from assay.worker.processes.channel import PARENT_GONE, when_closed

if TYPE_CHECKING:
    from assay.step.program import Step
    from assay.training.probes import ActivationNorms

Timed = tuple[float, ...]
"""Seconds of a step; on an accelerator also those in which the host queued it, and those between two of its events."""
_QUICK = 0.1
"""Seconds of a step below which a turn has several."""
_FEWEST, _ENOUGH, _MOST = 3, 8, 40
"""Numbers of turns: always; before the spread is looked at; at most."""
_STEADY = 0.01
"""Relative standard error of the median at which no further turn is needed."""


def main(tasks: Iterable[str]) -> int:
    """Do a task for each line, and print its answer."""
    import torch._dynamo  # noqa: F401  # it is imported by the first step in any case, here once for all

    import assay.worker.build  # noqa: F401

    for line in tasks:
        print(answer_task(Task.model_validate_json(line)).model_dump_json(), flush=True)
    return 0


def answer_task(task: Task) -> CalibrationReply:
    """Time the steps of a task; a fault of its run is the reason why it has no times."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(scratch("steps"))
        try:
            models = [stack.enter_context(_model(run, place / str(at))) for at, run in enumerate(task.runs)]
            found, share = _turns(models, task.seconds)
        except (UsageError, RuntimeError, MemoryError, OSError) as error:
            return CalibrationReply(digest=task.digest, refused=first_line(error))
    depths = tuple(run.model.n_layer for run in task.runs)
    whole, host, device = (_part(found, place) for place in range(3))
    times = StepTimes(depths=depths, turns=whole, host_turns=host, device_turns=device, others_share=share)
    return CalibrationReply(digest=task.digest, times=times)


def _part(turns: Sequence[Sequence[Timed]], place: int) -> tuple[tuple[float, ...], ...]:
    """Return one of the times of every step; empty if steps have no such time."""
    if len(turns[0][0]) <= place:
        return ()
    return tuple(tuple(one[place] for one in turn) for turn in turns)


def _turns(models: Sequence[Callable[[], Timed]], seconds: float) -> tuple[list[tuple[Timed, ...]], float | None]:
    """Return the times of each turn by model, and the share of the cores that others used meanwhile."""
    from assay.instruments.rates.timed_operators import OthersShare

    turns: list[tuple[Timed, ...]] = []
    began = time.perf_counter()
    with OthersShare() as others:
        while not _enough(_part(turns, 0) if turns else (), time.perf_counter() - began, seconds):
            turns.append(tuple(model() for model in models))
    return turns, others.share


@contextlib.contextmanager
def _model(run: ResolvedRun, folder: Path) -> Iterator[Callable[[], Timed]]:
    """Yield a function that does the steps of one turn of a run, in a forked process, and returns their times.

    Raises `RuntimeError` with the fault if the run's step cannot be built or done.
    """
    if not hasattr(os, "fork"):
        yield _settled(run, folder)
        return
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        _serve(theirs, run, folder)
    theirs.close()
    with ours, ours.makefile("rw") as line:
        try:
            _asked(line)
            yield lambda: _asked(line)
        finally:
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)
            os.waitpid(child, 0)


def _asked(line: TextIO) -> Timed:
    """Ask a forked process for one turn, and return its times."""
    line.write("go\n")
    line.flush()
    said = line.readline()
    try:
        found = tuple(map(float, said.split()))
    except ValueError:
        raise RuntimeError(said.strip()) from None
    if not found:
        raise RuntimeError("its process died")
    return found


def _serve(end: socket.socket, run: ResolvedRun, folder: Path) -> NoReturn:
    """Do a turn for each line that is read, until the other end is closed. A fault is one line, and the last."""
    when_closed(0, lambda: os._exit(PARENT_GONE))
    turn: Callable[[], Timed] | None = None
    with contextlib.suppress(BaseException), end.makefile("rw") as line:
        for _ in line:
            try:
                turn = turn or _settled(run, folder)
                said = " ".join(map(repr, turn()))
            except (UsageError, RuntimeError, MemoryError) as error:
                said = first_line(error)
            line.write(f"{said}\n")
            line.flush()
    os._exit(0)


def _settled(run: ResolvedRun, folder: Path) -> Callable[[], Timed]:
    """Return a function that does one turn of a run, whose first steps are done."""
    from assay.instruments.memory.resident_memory import keep_freed_memory, return_freed_memory

    return_freed_memory()
    step = _stepper(run, folder)
    step()
    keep_freed_memory()
    step()

    def turn() -> Timed:
        """Return the median times of the steps after the first one: three if steps are quick, or else one."""
        timed = 3 if step()[0] < _QUICK else 1
        return tuple(map(statistics.median, zip(*(step() for _ in range(timed)), strict=True)))

    return turn


def _stepper(run: ResolvedRun, folder: Path) -> Callable[[], Timed]:
    """Build the step of a run on random tokens; return a function that does the next step and returns its times."""
    from assay.data import open_prepared
    from assay.data.random_tokens import write_random
    from assay.parallel.process_rank import ALONE
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
    if device.type == "cuda":
        return lambda: _timed_on_cuda(step, next(indices), probes)
    return lambda: (train_step(step, next(indices), probes).seconds,)


def _timed_on_cuda(step: "Step", index: int, probes: "ActivationNorms") -> Timed:
    """Do a step of an accelerator; return its seconds, the host's and the device's."""
    from assay.training.loop import train_step

    record = train_step(step, index, probes)
    assert record.host_seconds is not None
    assert record.device_seconds is not None
    return record.seconds, record.host_seconds, record.device_seconds


def _enough(turns: Sequence[tuple[float, ...]], spent: float, allowed: float) -> bool:
    if len(turns) < _FEWEST:
        return False
    if len(turns) >= _MOST or spent > allowed:
        return True
    return len(turns) >= _ENOUGH and max(map(relative_error, zip(*turns, strict=True))) < _STEADY


if __name__ == "__main__":
    when_closed(0, lambda: os._exit(PARENT_GONE))
    raise SystemExit(main(sys.stdin))
