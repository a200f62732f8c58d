"""The status of a run."""

from enum import StrEnum

from assay.records.exits import Exit


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
    def exit_code(self) -> Exit:
        """The command line's exit code for a single run with this status."""
        return {
            Status.DONE: Exit.DONE,
            Status.RUNNING: Exit.DONE,
            Status.FAILED: Exit.FAULT,
            Status.UNAVAILABLE: Exit.REFUSED,
            Status.BUDGET_REACHED: Exit.BUDGET_REACHED,
            Status.INTERRUPTED: Exit.INTERRUPTED,
        }.get(self, Exit.NO_RESULT)
