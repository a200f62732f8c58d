"""Waves as jobs of Slurm, submitted with submitit; on a machine without Slurm they are processes, one after another.

All machines share the home. `ASSAY_SLURM` has further parameters of submitit as ``key=value`` pairs with spaces between
them, such as ``slurm_partition=gpu timeout_min=240``. A job outlives the coordinator; `assay study resume` refuses to
start while one still runs.
"""

import os
import subprocess
from typing import Any, ClassVar

from assay.errors import UsageError
from assay.executors.base import Work
from assay.executors.elsewhere import Elsewhere, WaveFiles, is_installed

_NO_LIMIT_MINUTES = 60 * 24 * 365
"""Limit of a process on a machine without Slurm, because submitit's own is two minutes."""
_AT_ONCE = 64
"""Jobs that wait or run at once; further ones are submitted as these end, so that a limit of time can hold."""


class Slurm(Elsewhere):
    """Runs each wave as a job of Slurm."""

    name: ClassVar[str] = "slurm"

    def check(self) -> None:
        """Raise `UsageError` if submitit is not installed, or for a parameter without a value."""
        if not is_installed("submitit"):
            raise UsageError("the executor slurm needs the package submitit: pip install 'assay[slurm]'")
        _parameters()

    def open(self, work: Work) -> int:
        """Find Slurm; returns how many jobs are in flight at once."""
        import submitit

        self._executor: Any = submitit.AutoExecutor(folder=work.folder / "waves" / "slurm")
        limit = {} if self._executor.cluster == "slurm" else {"timeout_min": _NO_LIMIT_MINUTES}
        self._executor.update_parameters(**limit | _parameters())
        if self._executor.cluster == "slurm":
            return _AT_ONCE
        return 1 if work.blocks else work.slots  # submitit's local executor starts everything at once

    def submit(self, files: WaveFiles, cores: int) -> "_Job":
        """Submit a wave as a job."""
        if self._executor.cluster == "slurm":
            whole = {"slurm_exclusive": True} if not cores else {"cpus_per_task": cores}
            self._executor.update_parameters(name=f"assay-{files.number}", **whole)
        return _Job(self._executor.submit(subprocess.call, files.command))


class _Job:
    """A job in flight."""

    def __init__(self, job: Any) -> None:
        self._job = job

    def alive(self) -> bool:
        """True until the job has ended."""
        return not self._job.done()

    def cancel(self) -> None:
        """Cancel the job."""
        self._job.cancel()


def _parameters() -> dict[str, Any]:
    """Return submitit's parameters from the environment. Raises `UsageError` for one without a value."""
    found: dict[str, Any] = {}
    for pair in os.environ.get("ASSAY_SLURM", "").split():
        key, separator, value = pair.partition("=")
        if not separator:
            raise UsageError(f"ASSAY_SLURM has {pair!r}; write key=value pairs with spaces between them")
        found[key] = int(value) if value.isdigit() else value
    return found
