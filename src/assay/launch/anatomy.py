"""The anatomy of a run's step, from a process of its own: the parent imports no torch, and no weights are kept."""

import subprocess
import sys

from assay.config.home import Home
from assay.config.run import Run
from assay.data.progress import Progress
from assay.errors import UsageError
from assay.launch.prepare import ReadyRun, ready
from assay.optimizations import mesh_of
from assay.records.anatomy import Anatomy
from assay.records.status import Status

_CHILD = (sys.executable, "-P", "-m", "assay.worker.programs.anatomy")


def taken_apart(run: Run, home: Home, progress: Progress) -> Anatomy:
    """Measure the anatomy of a run's step on this machine.

    Raises `UsageError` for a fault that the user can correct, including a run on several ranks. Raises `StorageError`
    if the disk refuses, and `RuntimeError` if the child fails.
    """
    if mesh_of(run).size > 1:
        raise UsageError(
            "`assay anatomy` measures the step of one device; leave out techniques that divide it among ranks"
        )
    prepared = ready(run, home, progress)
    progress("measuring one step", None)
    return _measured(prepared)


def _measured(prepared: ReadyRun) -> Anatomy:
    command = [*_CHILD, str(prepared.data_folder)]
    answer = subprocess.run(command, input=prepared.run.model_dump_json(), capture_output=True, text=True, check=False)
    lines = answer.stderr.strip().splitlines() or ["it printed no message"]
    if answer.returncode == Status.UNAVAILABLE.exit_code:
        raise UsageError(lines[-1])
    if answer.returncode != 0:
        raise RuntimeError(f"the measurement of the step ended with exit code {answer.returncode}: {lines[-1]}")
    return Anatomy.model_validate_json(answer.stdout.strip().splitlines()[-1])
