"""The status of a run, and the exit codes of the command line, each with its one meaning."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum


class Exit(IntEnum):
    """Exit code of a command."""

    DONE = 0
    FAULT = 1
    REFUSED = 2
    NO_RESULT = 3
    BUDGET_REACHED = 4
    UNMET = 5
    INTERRUPTED = 130


MEANINGS: Mapping[Exit, str] = {
    Exit.DONE: "Done. A question has its answer, whatever it is: a stack that does not fit, a run of a comparison that "
    "ran out of memory or diverged, and a faulty setting that `assay doctor` found are answers.",
    Exit.FAULT: "A fault: a run failed by an error, the disk refused, a copy could not be made, or assay has a fault.",
    Exit.REFUSED: "Refused before anything ran: wrong input, or a machine that cannot.",
    Exit.NO_RESULT: "A run has no result: it ran out of memory, diverged, timed out or was killed, a script failed, or "
    "an optimization took no effect or computed wrong values.",
    Exit.BUDGET_REACHED: "A run ended at its budget of time, with its figures; it can be resumed.",
    Exit.UNMET: "A stated expectation or limit does not hold, and nothing else went wrong: `--fail-on refuted` of a "
    "study, a step that cannot be compared with its baseline, a script that does not fit the device of `assay absent`, "
    "a measured peak above the budget of `assay capacity --verify`, and a step that grew beyond its lock in "
    "`assay gate check`, or is slower than `assay gate time --at-most` allows.",
    Exit.INTERRUPTED: "Interrupted, by Ctrl-C or SIGTERM; what was measured is saved.",
}
"""Sentence on each code, for the reference."""


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
