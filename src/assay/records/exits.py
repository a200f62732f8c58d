"""Exit codes of the command line, each with its one meaning."""

from collections.abc import Mapping
from enum import IntEnum


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
    "study, a script that does not fit the device of `assay absent`, and a measured peak above the budget of "
    "`assay capacity --verify`.",
    Exit.INTERRUPTED: "Interrupted, by Ctrl-C or SIGTERM; what was measured is saved.",
}
"""Sentence on each code, for the reference."""
