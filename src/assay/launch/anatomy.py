"""The anatomy of a run's step, from a process of its own: the parent imports no torch, and no weights are kept."""

import subprocess
import sys
from pathlib import Path

from assay.config.home import Home
from assay.config.run import Run
from assay.data.progress import Progress
from assay.errors import UsageError
from assay.hardware import detect
from assay.launch.child import check_alive
from assay.launch.prepare import ReadyRun, ready
from assay.optimizations import mesh_of
from assay.records.anatomy import Anatomy
from assay.records.status import Status

_CHILD = (sys.executable, "-P", "-m", "assay.worker.programs.anatomy")


def measure_anatomy(
    run: Run, home: Home, progress: Progress, *, operators: bool = False, snapshot: Path | None = None
) -> Anatomy:
    """Measure the anatomy of a run's step on this machine, on request with every operator of one more step.

    `snapshot` is a file for CUDA's own history of one more step's memory. Raises `UsageError` for a fault that the user
    can correct, including a run on several ranks, and a snapshot on another device. Raises `StorageError` if the disk
    refuses, and `RuntimeError` if the child fails, which is `ProcessKilled` if it was killed.
    """
    if mesh_of(run).size > 1:
        raise UsageError(
            "`assay anatomy` measures the step of one device; leave out techniques that divide it among ranks"
        )
    if snapshot is not None and detect().device(run.device) != "cuda":
        raise UsageError(
            "a memory snapshot needs a CUDA device, because only CUDA's allocator keeps a history; --perfetto shows "
            "the bytes alive on every device"
        )
    prepared = ready(run, home, progress)
    progress("measuring one step", None)
    words = [*(["--operators"] if operators else []), *([] if snapshot is None else ["--snapshot", str(snapshot)])]
    return _measured(prepared, words, home)


def _measured(prepared: ReadyRun, words: list[str], home: Home) -> Anatomy:
    command = [*_CHILD, str(prepared.data_folder), *words]
    task = prepared.run.model_dump_json()
    answer = subprocess.run(command, input=task, env=home.environment(), capture_output=True, text=True, check=False)
    check_alive(answer.returncode, "the process that measures the step")
    lines = answer.stderr.strip().splitlines() or ["it printed no message"]
    if answer.returncode == Status.UNAVAILABLE.exit_code:
        raise UsageError(lines[-1])
    if answer.returncode != 0:
        raise RuntimeError(f"the measurement of the step ended with exit code {answer.returncode}: {lines[-1]}")
    return Anatomy.model_validate_json(answer.stdout.strip().splitlines()[-1])
