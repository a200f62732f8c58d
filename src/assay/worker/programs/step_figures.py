"""The process that finds the figures of a step for a gate: ``python -m assay.worker.programs.step_figures``.

The task is one line of JSON on standard input, the answer one on standard output. With `library` the hooks of a GPU
that is not there are loaded before torch is imported. A fault that the user can correct is the last line of standard
error, with exit code 2.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.config.extensions import call_function, needed_parameters, parameters_of
from assay.errors import UsageError
from assay.fake import hooks
from assay.records.gated import CPU, StepFigures
from assay.worker.processes.channel import take_standard_output
from assay.worker.programs.own import blame_user, checked_step, end_with


def main() -> int:
    """Do the task; returns the exit code."""
    task = json.loads(sys.stdin.readline())
    answer = os.fdopen(take_standard_output(), "w")
    hooks.begin_absent(task["device"], task.pop("library"))
    try:
        print(_found(**task).model_dump_json(), file=answer, flush=True)
    except UsageError as error:
        end_with(error)
    return 0


def _found(name: str, folder: str, device: str) -> StepFigures:
    """Return the figures of the step that a function of the user's makes."""
    from assay.fake.gated_step import breaks_on_cpu, eager_code, gated_step

    if needed := needed_parameters(parameters_of(name, folder)):
        raise UsageError(f"{name} takes {', '.join(needed)}; give each a default, because a gate passes no arguments")

    def make() -> Callable[[], Any]:
        return checked_step(name, call_function(name, folder))

    with blame_user(name, "step"):
        with eager_code() as compiled:
            found = gated_step(make, device, Path(folder))
        if not compiled or device != CPU:
            return found
        return found.model_copy(update={"figures": {**found.figures, "graph_breaks": breaks_on_cpu(make)}})


if __name__ == "__main__":
    sys.exit(main())
