"""The agent of a run on several ranks: ``python -m assay.runs.agent RUN_FOLDER --ranks N [--turns N]``.

It stands where the single child stands otherwise: the parent starts it, listens to it and stops it. It starts one
worker a rank through torchrun's elastic agent, which hands out ranks and a place to meet, watches the workers, and
stops the others when one has died. Rank 0 inherits the agent's standard streams, and with them the conversation with
the parent; the other ranks write to files of their own. Where a rank has died, the agent puts on record which, of what,
and where its log lies, in the place of what rank 0 could only call a broken connection.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from assay.errors import StorageError
from assay.runs.folder import RunFolder
from assay.runs.leave import leave
from assay.runs.record import Status
from assay.runs.recover import compose

_WORKER = ("-P", "-m", "assay.runs.worker")
_LOGS = "ranks"
_GRACE_SECONDS = 20
"""For workers to end by themselves once one of them has died."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the run of one folder on this machine's ranks; returns the exit code of its status."""
    parser = argparse.ArgumentParser(prog="assay.runs.agent")
    parser.add_argument("folder")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--turns", type=int)
    options = parser.parse_args(arguments)
    folder = RunFolder(options.folder)
    turns = ["--turns", str(options.turns)] if options.turns is not None else []
    failure: ProcessFailure | None = None
    try:
        elastic_launch(_config(folder, options.ranks), sys.executable)(*_WORKER, str(folder.path), *turns)
    except ChildFailedError as error:
        failure = _first(error.failures.values())
    except SignalException:
        pass  # the parent's wish; the workers have been asked, and rank 0 has said how it ended
    return _conclude(folder, failure)


def _config(folder: RunFolder, ranks: int) -> LaunchConfig:
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


def _conclude(folder: RunFolder, failure: ProcessFailure | None) -> int:
    """The exit code of the run's status, once a rank's death is on record."""
    result = folder.result()
    if failure is not None and _is_the_cause(failure, result.status if result else None):
        status, reason = _account(failure, folder)
        said = result.model_copy(update={"status": status, "reason": reason}) if result else None
        with suppress(StorageError):
            folder.write_result(said or compose(folder, status, reason))
        print(reason, file=sys.stderr, flush=True)
        return status.exit_code
    return result.status.exit_code if result else Status.FAILED.exit_code


def _first(failures: Iterable[ProcessFailure]) -> ProcessFailure:
    """Of those that were found dead together, one that was killed: the others' connections broke."""
    return min(failures, key=lambda one: (one.exitcode >= 0, one.timestamp))


def _is_the_cause(failure: ProcessFailure, status: Status | None) -> bool:
    """Rank 0 speaks for itself unless it was killed; of the others, whoever died first explains a failed run.

    A run that is over stays so: what it came to was on record before a process died on its way out.
    """
    if status in (Status.DONE, Status.BUDGET_REACHED):
        return False
    if failure.exitcode < 0:
        return True
    return failure.local_rank != 0 and status in (None, Status.FAILED)


def _account(failure: ProcessFailure, folder: RunFolder) -> tuple[Status, str]:
    rank, log = failure.local_rank, _log(folder, failure.local_rank)
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        return Status.KILLED, f"rank {rank} was killed by signal {-failure.exitcode} ({name}); its log is {log}"
    return Status.FAILED, f"rank {rank} failed: {_last_line(log)} (its log is {log})"


def _log(folder: RunFolder, rank: int) -> Path:
    """Where a rank's standard error went."""
    if rank == 0:
        return folder.log_file
    found = sorted((folder.path / _LOGS).glob(f"*/attempt_0/{rank}/stderr.log"), key=os.path.getmtime)
    return found[-1] if found else folder.path / _LOGS


def _last_line(log: Path) -> str:
    with suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        if lines:
            return lines[-1]
    return "it left no word"


if __name__ == "__main__":
    leave(main())
