"""The agent of a run on several ranks: ``python -m assay.worker.processes.agent RUN_FOLDER --ranks N [--turns N]``.

It takes the place of the single child: the parent starts it, reads its events and stops it. It starts one worker per
rank through torchrun's elastic agent. That agent assigns ranks and a rendezvous address, watches the workers, and stops
the others when one has died. Rank 0 inherits the agent's standard streams, and with them the channel to the parent. The
other ranks write to files of their own.

Standard input is the lifeline of all of them. When it closes, the parent has ended, and the agent kills the ranks and
writes no result, as a single child does. Torch takes seconds to import, so it is imported after the lifeline is
watched.

If another rank explains how the run ended (`culprit`), the agent records that rank, its reason and the path of its log.
Rank 0 could only report a broken connection.
"""

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psutil

from assay.errors import StorageError
from assay.platforms import is_closed
from assay.records.status import Status
from assay.store.reconcile import compose
from assay.store.run_folder import RunFolder
from assay.worker.processes.channel import PARENT_GONE, when_closed
from assay.worker.processes.exit import leave
from assay.worker.processes.rank_termination import killed_in_the_end
from assay.worker.processes.root_cause import End, culprit

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

_PROGRAM = "assay.worker"
_LOGS = "ranks"
_BY_TORCH = re.compile(r"[IWE]\d{4} ")
"""Prefix of the lines that torchrun's agent writes, also into rank 0's log."""


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

    with killed_in_the_end(_PROGRAM, ranks) as killed:
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


if __name__ == "__main__":
    leave(main())
