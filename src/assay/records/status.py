"""The status of a run."""

from enum import StrEnum


class Status(StrEnum):
    """Status of a run, determined from its process if the run could not record one itself."""

    RUNNING = "running"
    DONE = "done"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    KILLED = "killed"
    TIMED_OUT = "timed_out"
    NO_EFFECT = "no_effect"
    WRONG_VALUES = "wrong_values"
    INTERRUPTED = "interrupted"
    BUDGET_REACHED = "budget_reached"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    DAMAGED = "damaged"
    """Part of a run's files cannot be read, and no process runs it any more."""

    @property
    def resumable(self) -> bool:
        """True if the run can go on from its last checkpoint."""
        stopped = {Status.INTERRUPTED, Status.BUDGET_REACHED, Status.TIMED_OUT, Status.KILLED}
        return self in stopped | {Status.FAILED, Status.UNAVAILABLE, Status.DAMAGED}

    @property
    def finished(self) -> bool:
        """True if the run ended on its own with all its figures, also at its budget."""
        return self in {Status.DONE, Status.BUDGET_REACHED}

    @property
    def failure(self) -> bool:
        """True if the status makes a comparison fail; running out of memory and diverging are results there."""
        return self in {Status.NO_EFFECT, Status.WRONG_VALUES, Status.KILLED, Status.FAILED, Status.TIMED_OUT}

    @property
    def exit_code(self) -> int:
        """The command line's exit code for a single run with this status."""
        return {
            Status.DONE: 0,
            Status.RUNNING: 0,
            Status.FAILED: 1,
            Status.UNAVAILABLE: 2,
            Status.BUDGET_REACHED: 4,
            Status.INTERRUPTED: 130,
        }.get(self, 3)
