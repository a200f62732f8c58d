"""The measured child: ``python -m assay.worker RUN_FOLDER [--turns N] [--sample]``.

Under torchrun the arguments are ``PRESET|FILE [KEY=VALUE]... [--with NAME]...`` or ``--resume RUN …``, as for ``assay
train``. Then no parent has prepared a folder, and the processes prepare it themselves (`process_rank`).

It is pinned to its cores before torch starts its threads, which then stay there, too. A process that may move between
cores finds its caches empty after each move, so its times would depend on what else the machine does. Several pinned
processes do not disturb each other.

The child imports torch, in a phase of its own, before it waits for its start. So children of one wave import at once.
Every outcome becomes a status with a reason. `result.json`, the last event and the exit code agree on it. An unexpected
error leaves its traceback in the log.
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module

import psutil

from assay.errors import StorageError, UsageError, first_line, users_place
from assay.files import is_full
from assay.optimizations import Unavailable
from assay.platforms import CAN_FORK_WITH_THREADS
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store import history
from assay.store.processes import start_ticks
from assay.store.result import loss_spread
from assay.store.run_folder import RunFolder
from assay.training.stops import (
    BudgetReached,
    Diverged,
    EarlyEnd,
    Interrupted,
    NoEffect,
    TargetReached,
    Unproven,
    Unread,
    WrongValues,
    is_out_of_memory,
    what_was_refused,
)
from assay.worker.phases import Phases
from assay.worker.processes.channel import Channel, ParentChannel, SilentChannel, take_standard_output
from assay.worker.processes.ends import put_on_record
from assay.worker.processes.fork_server import RUN_IMPORTS
from assay.worker.proof.process import ReferenceProcess
from assay.worker.result import RunFindings

_STATUS: dict[type[EarlyEnd], Status] = {
    TargetReached: Status.DONE,
    BudgetReached: Status.BUDGET_REACHED,
    Interrupted: Status.INTERRUPTED,
    Diverged: Status.DIVERGED,
    NoEffect: Status.NO_EFFECT,
    WrongValues: Status.WRONG_VALUES,
    Unproven: Status.FAILED,
    Unread: Status.FAILED,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Train one run; returns the exit code of its status, which is 2 if the run is refused."""
    parser = argparse.ArgumentParser(prog="assay.worker")
    parser.add_argument("source", help="a run's folder; under torchrun a preset, a YAML file or, with --resume, a run")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--with", dest="optimizations", action="append", default=[], metavar="NAME")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--turns", type=int, help="timed blocks that wait for turns; 0 for a cell without times")
    parser.add_argument("--sample", action="store_true", help="record a short text of the trained model")
    parser.add_argument("--forked", action="store_true", help="say that the process was forked from a server")
    options = parser.parse_intermixed_args(arguments)
    folder = RunFolder(options.source)
    if folder.spec_file.exists():
        how = {"sample": options.sample, "forked": options.forked}
        return _work(folder, _channel(folder, options.turns), options.turns, "import", **how)
    from assay.worker.processes.torchrun import Asked, join_run

    try:
        asked = Asked(options.source, options.overrides, options.optimizations, options.resume)
        with join_run(asked) as (folder, channel):
            return _work(folder, channel, None, "gathering")
    except (UsageError, StorageError) as error:
        status = Status.UNAVAILABLE if isinstance(error, UsageError) else Status.FAILED
        put_on_record(status, str(error))
        print(f"assay: {error}", file=sys.stderr, flush=True)
        return status.exit_code


def _speaks() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _channel(folder: RunFolder, turns: int | None) -> Channel:
    """Channel of a child with an assay parent: rank 0 sends events, and standard input is each rank's lifeline."""
    if not _speaks():
        return SilentChannel(lifeline=0)
    return ParentChannel(folder.events_file, take_standard_output(), 0, in_turns=bool(turns))


def _work(folder: RunFolder, channel: Channel, turns: int | None, beginning: str, **how: bool) -> int:
    """Train the run of one folder; `beginning` names the phase of the process until now."""
    channel.stop_on_signals()
    phases = Phases(channel, beginning, seconds_since_start())
    findings = RunFindings(folder.spec(), phases, counts_heap=turns != 0)

    def begin_reference() -> ReferenceProcess | None:
        return ReferenceProcess.of(folder, findings.spec.config) if _speaks() else None

    def work() -> None:
        if _speaks():
            folder.begin()
        pin(findings.spec.config.cores)
        # Without forks it imports torch beside this process; with them it has what this one has imported.
        reference = None if CAN_FORK_WITH_THREADS else begin_reference()
        for name in RUN_IMPORTS:
            import_module(name)
        with phases.aside("waiting"):
            channel.wait("start")
        if channel.interrupted:
            raise Interrupted("interrupted before it began")
        reference = reference or begin_reference()
        from assay.worker.session import Session

        Session(folder, channel, phases, findings, turns, reference, **how).work()

    status, reason = conclude(work, lambda: f"in the phase {phases.current}")
    if reason is not None:
        put_on_record(status, reason)
        print(reason, file=sys.stderr, flush=True)
    if not _speaks():
        return status.exit_code
    return _record(folder, channel, findings, status, reason)


def conclude(work: Callable[[], None], where: Callable[[], str]) -> tuple[Status, str | None]:
    """Call `work`, and return the status and a reason in one sentence. `where` names the current phase."""
    try:
        work()
    except EarlyEnd as ending:
        return _STATUS[type(ending)], _disk(ending)
    except Unavailable as error:
        return Status.UNAVAILABLE, str(error)
    except (UsageError, StorageError) as error:
        return Status.FAILED, _disk(error)
    except Exception as error:
        if is_out_of_memory(error):
            traceback.clear_frames(error.__traceback__)  # their frames hold memory, which reporting the error needs
            return Status.OUT_OF_MEMORY, f"out of memory {where()}: {what_was_refused(error)}"
        traceback.print_exc()
        said, place = _disk(error), users_place(error)  # an extension's, or that of a model of the user's own
        ours = not place or said != first_line(error)
        return Status.FAILED, said if ours else f"{type(error).__name__}: {said}{place}"
    return Status.DONE, None


def _record(folder: RunFolder, channel: Channel, findings: RunFindings, status: Status, reason: str | None) -> int:
    try:
        folder.write_result(_found(folder, findings, status, reason))
        if status is Status.DONE:
            folder.trained()
    except StorageError as error:
        status, reason = Status.FAILED, reason or _disk(error)
        print(reason, file=sys.stderr)
    with suppress(StorageError):
        channel.event("end", status=status, reason=reason)
    sys.stderr.flush()
    return status.exit_code


def _found(folder: RunFolder, findings: RunFindings, status: Status, reason: str | None) -> RunResult:
    """Results of this process; if it reached no step, those that the earlier processes had logged."""
    findings.loss_spread = loss_spread([step.loss for step in history.steps(folder.events())])
    own = findings.result(status, reason)
    if findings.position is not None:
        return own
    from assay.store.result import compose

    return compose(folder, status, reason).model_copy(
        update={"phase_seconds": own.speed.phase_seconds, "memory": own.memory}
    )


def _disk(error: Exception) -> str:
    """First line of the error, prefixed "the disk is full" if it, its cause or its context is ENOSPC or EDQUOT."""
    line = first_line(error)
    chain = (error, error.__cause__, error.__context__)
    return f"the disk is full: {line}" if any(map(is_full, chain)) and not line.startswith("the disk is full") else line


def seconds_since_start() -> float:
    """Seconds since the process started, in which the interpreter and the package were loaded.

    Linux tells the time of its boot in whole seconds only, so the start is taken relative to the boot.
    """
    ticks = start_ticks(os.getpid())
    if ticks is None:
        return max(0.0, time.time() - psutil.Process().create_time())
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def pin(cores: Sequence[int] | None) -> None:
    """Pin this process, as one of the ranks of its machine, to its share of the cores; None leaves it free.

    Raises `UsageError` if the system refuses.
    """
    if cores is None:
        return
    rank, ranks = (int(os.environ.get(name, default)) for name, default in (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1)))
    try:
        os.sched_setaffinity(0, share(cores, rank, ranks))
    except (AttributeError, OSError) as error:
        raise UsageError(f"this system cannot pin a process to the cores {list(cores)} ({error})") from error


def share(cores: Sequence[int], rank: int, ranks: int) -> Sequence[int]:
    """Return the cores of one rank: equal parts, in order; fewer cores than ranks are shared by turns."""
    each = len(cores) // ranks
    return cores[rank * each : (rank + 1) * each] if each else (cores[rank % len(cores)],)
