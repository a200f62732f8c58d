"""The agent of a run on several ranks: ``python -m assay.worker.processes.agent RUN_FOLDER --ranks N [--turns N]``.

It takes the place of the single child: the parent starts it, reads its events and stops it. It starts one worker per
rank through torchrun's elastic agent. That agent assigns ranks and a rendezvous address, watches the workers, and stops
the others when one has died. Rank 0 inherits the agent's standard streams, and with them the channel to the parent. The
other ranks write to files of their own.

Standard input is the lifeline of all of them. When it closes, the parent has ended, and the agent kills the ranks and
writes no result, as a single child does. Torch takes seconds to import, so it is imported after the lifeline is
watched.

The last thing that ranks do together is to synchronize. If one of them is missing, the others can finish neither a step
nor a checkpoint. So after the first end, successful or not, no rank has long work left. But a rank that waits for the
others inside torch cannot handle a signal, and torch's agent would wait longer than assay promises. Such ranks have a
grace time, and are then killed.

If another rank explains how the run ended (`culprit`), the agent records that rank, its reason and the path of its log.
Rank 0 could only report a broken connection.
"""

import argparse
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psutil

from assay.errors import StorageError
from assay.platforms import is_closed, kill_group
from assay.records.status import Status
from assay.store.result import compose
from assay.store.run_folder import RunFolder
from assay.worker.processes.channel import PARENT_GONE, when_closed
from assay.worker.processes.ends import End, culprit, leave

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

_PROGRAM = "assay.worker"
_LOGS = "ranks"
_BY_TORCH = re.compile(r"[IWE]\d{4} ")
"""Prefix of the lines that torchrun's agent writes, also into rank 0's log."""
GRACE_SECONDS = 20.0
"""Time in which a rank must record its end."""

_TICK_SECONDS = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Train the run of one folder on this machine's ranks; returns the exit code of its status."""
    parser = argparse.ArgumentParser(prog="assay.worker.processes.agent")
    parser.add_argument("folder")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--turns", type=int)
    options = parser.parse_args(arguments)
    when_closed(0, _end_with_the_parent)
    folder = RunFolder(options.folder)
    turns = ["--turns", str(options.turns)] if options.turns is not None else []
    folder.begin()
    ends = _launch(folder, options.ranks, turns)
    if is_closed(0):
        _end_with_the_parent()
    return _conclude(folder, culprit(ends))


def _launch(folder: RunFolder, ranks: int, turns: Sequence[str]) -> list[End]:
    """Run the ranks to their end. Returns the ends of ranks that failed by themselves, in the order of failure."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    with kill_stragglers(_PROGRAM, ranks) as killed:
        try:
            launch = elastic_launch(_config(folder, ranks), sys.executable)
            launch("-P", "-m", _PROGRAM, str(folder.path), *turns)
        except ChildFailedError as error:
            found = [one for one in error.failures.values() if one.pid not in killed]
            return [End.of(one.local_rank, one.exitcode, one.error_file_data) for one in found]
        except SignalException:
            pass  # the parent stopped the run; the agent has signalled the workers, and rank 0 has recorded its status
    return []


def _end_with_the_parent() -> NoReturn:
    """Kill every process of the run and exit at once, because the parent has ended."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            process.kill()
    os._exit(PARENT_GONE)


def _config(folder: RunFolder, ranks: int) -> "LaunchConfig":
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.launcher.api import LaunchConfig

    logs = folder.path / _LOGS
    logs.mkdir(exist_ok=True)
    quiet = dict.fromkeys(range(1, ranks), Std.ALL)
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id=folder.id,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=quiet),
    )


def _conclude(folder: RunFolder, end: End | None) -> int:
    """Record the end that explains the run, and return the exit code of the run's status.

    A run that was done or had reached its budget keeps that status, even if a process died while it exited.
    """
    result = folder.result()
    over = result is not None and result.status.finished
    if end is None or over or (result is not None and end.rank == 0 and end.reason is not None):
        return result.status.exit_code if result else Status.FAILED.exit_code
    status, reason = _account(end, folder)
    said = result.model_copy(update={"status": status, "reason": reason}) if result else None
    with suppress(StorageError):
        folder.write_result(said or compose(folder, status, reason))
    print(reason, file=sys.stderr, flush=True)
    return status.exit_code


def _account(end: End, folder: RunFolder) -> tuple[Status, str]:
    log = _log(folder, end.rank)
    if end.reason is not None:
        said = end.reason if end.rank == 0 else f"rank {end.rank} failed: {end.reason} (its log is {log})"
        return end.status or Status.FAILED, said
    if end.exit_code < 0:
        name = signal.Signals(-end.exit_code).name
        return Status.KILLED, f"rank {end.rank} was killed by signal {-end.exit_code} ({name}); its log is {log}"
    return Status.FAILED, f"rank {end.rank} failed: {_last_line(log)} (its log is {log})"


def _log(folder: RunFolder, rank: int) -> Path:
    """Path of a rank's standard error."""
    if rank == 0:
        return folder.log_file
    found = sorted((folder.path / _LOGS).glob(f"*/attempt_0/{rank}/stderr.log"), key=os.path.getmtime)
    return found[-1] if found else folder.path / _LOGS


def _last_line(log: Path) -> str:
    with suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        own = [line for line in lines if not _BY_TORCH.match(line)]
        if own:
            return own[-1]
    return "its log has no message"


@contextmanager
def kill_stragglers(program: str, ranks: int, grace_seconds: float = GRACE_SECONDS) -> Iterator[set[int]]:
    """Watch this process's `ranks` children that run `program`, while the block lasts.

    Yields the set of process numbers of those that had to be killed.
    """
    killed: set[int] = set()
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(program, ranks, grace_seconds, killed, over), daemon=True)
    watcher.start()
    try:
        yield killed
    finally:
        over.set()
        watcher.join()


def _watch(program: str, ranks: int, grace_seconds: float, killed: set[int], over: threading.Event) -> None:
    workers: dict[int, psutil.Process] = {}
    deadline: float | None = None
    while not over.wait(_TICK_SECONDS):
        if len(workers) < ranks and deadline is None:
            workers |= {one.pid: one for one in psutil.Process().children() if _runs(one, program)}
        alive = [one.pid for one in workers.values() if _works(one)]
        if deadline is None and len(alive) < len(workers):
            deadline = time.monotonic() + grace_seconds
        if deadline is not None and time.monotonic() >= deadline:
            for pid in alive:
                killed.add(pid)
                kill_group(pid)  # torch starts each rank in its own session


def _runs(process: psutil.Process, program: str) -> bool:
    try:
        return program in process.cmdline()
    except psutil.Error:
        return False


def _works(process: psutil.Process) -> bool:
    """True if the process has not ended; torch's agent finds those that have."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


if __name__ == "__main__":
    leave(main())
