"""The process of a program of a user's own: ``python -m assay.worker.programs.own``, with a task on standard input.

The task is one line of JSON: a step to measure, two steps to compare, or a run to look at, or to trace. So is the
answer on standard output; a run that is looked at and then traced has two lines. What the user's code prints goes to
standard error. A fault that the user can correct is the last line of standard error, with exit code 2.
"""

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from assay.config.extensions import call_function, needed_parameters
from assay.config.run import ResolvedRun
from assay.errors import Untrainable, UsageError, first_line, users_place
from assay.records.own import UNTRAINABLE
from assay.records.status import Status
from assay.reference.expected import Kind
from assay.worker.processes.channel import take_standard_output


def main() -> int:
    """Do the task; returns the exit code."""
    task = json.loads(sys.stdin.readline())
    answer = os.fdopen(take_standard_output(), "w")
    try:
        work = _looked if "trace" in task else _traced if "run" in task else _proven if "against" in task else _measured
        for line in work(**task):
            print(line, file=answer, flush=True)
    except UsageError as error:
        end_with(error)
    return 0


def end_with(error: UsageError) -> NoReturn:
    """End the process with an error as the last line of standard error.

    Nothing of the user's is closed any more: a progress bar that ends with the process would print a line of its own.
    """
    print(f"\n{error}", file=sys.stderr, flush=True)
    os._exit(Status.UNAVAILABLE.exit_code)


def _looked(run: dict[str, Any], *, trace: bool) -> Iterator[str]:
    """Yield what the rows of a user's batches have, or null without such batches; then a trace, if it is asked for.

    A trace fails where it cannot follow a step, and the run goes on without it. A loss that trains nothing is answered.
    """
    from assay.fake.first_steps import check_program

    resolved = ResolvedRun.model_validate(run, strict=False)
    with blame_user(resolved.model.own, "model"):
        own = check_program(resolved, with_techniques=trace and resolved.ranks == 1)
        rows = None if own is None else own.checked()
    yield "null" if rows is None else rows.model_dump_json()
    if trace:
        try:
            yield from _traced(resolved.model_copy(update={"own_rows": rows}).model_dump(mode="json"))
        except Untrainable as error:
            yield json.dumps({UNTRAINABLE: str(error)})


def _traced(run: dict[str, Any]) -> Iterator[str]:
    """Trace the step of a run."""
    from assay.fake.traced_step import trace_on_cpu

    resolved = ResolvedRun.model_validate(run, strict=False)
    with blame_user(resolved.model.own, "model"):
        yield trace_on_cpu(resolved).model_dump_json()


def _measured(name: str, folder: str | None, **options: Any) -> Iterator[str]:
    """Measure the step that a function returns."""
    from assay.instruments.memory.resident_memory import keep_freed_memory, return_freed_memory

    return_freed_memory()
    step = _step(name, folder)
    from assay.own.measure import measure_step

    keep_freed_memory()
    with blame_user(name, "step"):
        yield measure_step(step, alone=True, **options).model_dump_json()


def _proven(name: str, against: str, folder: str | None, numerics: Kind) -> Iterator[str]:
    """Compare the values of two steps that functions return."""
    from assay.own.against import compare_steps

    step, baseline = _step(name, folder), _step(against, folder)
    with blame_user(f"{name} or of {against}", "step"):
        yield compare_steps(step, baseline, numerics).model_dump_json()


def _step(name: str, folder: str | None) -> Callable[[], Any]:
    """Call a function of the user's, and return the step that it makes. Raises `UsageError` if that is none."""
    return checked_step(name, call_function(name, folder))


def checked_step(name: str, step: Any) -> Callable[[], Any]:
    """Return the step that a function of the user's returned, or that of its parts. Raises `UsageError` for no step."""
    from torch import nn

    from assay.own.plain_step import FORMS, plain_step

    found = plain_step(step) if isinstance(step, tuple | list) else None
    if found is not None:
        return found
    if not callable(step) or isinstance(step, nn.Module):
        raise UsageError(f"{name} returned a {type(step).__name__}; return {FORMS}")
    if needed := needed_parameters(inspect.signature(step).parameters):
        raise UsageError(
            f"{name} returned a {type(step).__name__} that must be given {', '.join(needed)}; return {FORMS}"
        )
    return step  # type: ignore[no-any-return]


@contextmanager
def blame_user(name: str | None, what: str) -> Iterator[None]:
    """Context in which an error is the user's, if the code is: raises it as a `UsageError` with its place."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        if name is None:
            raise
        raise UsageError(f"the {what} of {name} failed: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    """Return an error with the place of the user's code that it comes from."""
    return f"{type(error).__name__}: {first_line(error)}{users_place(error)}"


if __name__ == "__main__":
    sys.exit(main())
