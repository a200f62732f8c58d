"""The process that finds the peak of a step on a GPU that is not there: ``python -m assay.worker.programs.gpu_peak``.

The task is one line of JSON on standard input, the answer one on standard output. The task names the device and either
a run or a function of the user's own. With `library` the step is traced on fake tensors: the hooks of that library are
loaded before torch is imported. Without it torch's CUDA build runs the step, and the absent GPU was preloaded. Each
batch is looked at in a forked process, so that no step sees what another has cached. A fault that the user can correct
is the last line of standard error, with exit code 2.
"""

import inspect
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from assay.config.extensions import call_function, parameters_of
from assay.config.run import ResolvedRun
from assay.errors import UsageError, first_line
from assay.fake import hooks
from assay.fake.peak import GpuPeak
from assay.platforms import fork_writer, read_fork
from assay.records.status import Status
from assay.worker.processes.channel import take_standard_output
from assay.worker.programs.own import blame_user, checked_step, end_with

_BATCH = "batch_size"
"""Argument with which a user's function makes a step of so many rows."""


def main() -> int:
    """Do the task; returns the exit code."""
    task = json.loads(sys.stdin.readline())
    answer = os.fdopen(take_standard_output(), "w")
    hooks.begin_absent(task["device"], task.pop("library"))
    import torch

    torch.set_num_threads(1)
    try:
        print(_found(**task).model_dump_json(), file=answer, flush=True)
    except UsageError as error:
        end_with(error)
    return 0


def _found(device: str, run: dict[str, Any], ran: bool, batch: int | None, largest: bool) -> GpuPeak:
    """Return the peak of the task's step, and the largest batch that fits if it is asked for."""
    resolved = ResolvedRun.model_validate(run, strict=False)
    if resolved.model.own is not None and not ran:
        # Forks need not import it again. Where a step runs they do: an import may start CUDA, which no fork can use.
        parameters_of(resolved.model.own, resolved.model.own_folder)

    def peak_at(rows: int | None) -> GpuPeak:
        return _peak_at(resolved, device, ran, batch, first=1 if largest else None)(rows)

    first = _forked(lambda: peak_at(None))
    if not largest or first.batch_size is None:
        return first
    from assay.absent.largest import Probe, Search, search_largest

    search = Search(search_largest(lambda rows: _forked(lambda: peak_at(rows)), (Probe(first.batch_size, first),)))
    return first.model_copy(update={"largest_batch": search.best.number if search.best else 0})


def _peak_at(
    run: ResolvedRun, device: str, ran: bool, batch: int | None, first: int | None
) -> Callable[[int | None], GpuPeak]:
    """Return the function that finds the peak at a batch.

    None is the batch of the task. Without one it is the default of the user's function, and without that `first`.
    """
    from assay.fake import absent_step, traced_step

    run_peak = absent_step.run_peak if ran else traced_step.run_peak
    step_peak = absent_step.step_peak if ran else traced_step.step_peak
    own = run.model.own

    def of_run(rows: int | None) -> GpuPeak:
        changed = run.training.model_copy(update={"batch_size": rows or run.training.batch_size})
        with blame_user(own, "model"):
            return run_peak(run.model_copy(update={"training": changed}), device)

    if own is None:
        return of_run
    takes = parameters_of(own, run.model.own_folder)
    if takes and tuple(takes) != (_BATCH,):  # a function that takes the shape of a model makes one
        return of_run
    default = takes[_BATCH].default if takes else None
    default = first if default is inspect.Parameter.empty else default

    def of_step(rows: int | None) -> GpuPeak:
        size = (rows or batch or default) if takes else None
        if takes and size is None:
            raise UsageError(
                f"{own} takes {_BATCH}; give it a default, or tell assay estimate how large: training.batch_size=8"
            )
        given = () if size is None else (size,)
        try:
            with blame_user(own, "step"):
                return step_peak(lambda: _step(own, run, given), device, size)
        except _ModelError:
            return of_run(rows)

    return of_step


class _ModelError(UsageError):
    """A function of the user's own returned a model, and no step."""


def _step(own: str, run: ResolvedRun, given: tuple[int, ...]) -> Callable[[], Any]:
    """Return the step that the user's function makes. Raises `_ModelError` if it makes a model."""
    from torch import nn

    from assay.model.own_model import OwnModel

    made = call_function(own, run.model.own_folder, *given)
    if isinstance(made, nn.Module | OwnModel):
        raise _ModelError(f"{own} returned a model")
    if run.optimizations:
        raise UsageError(f"{own} makes a step of your own, to which no optimization can be applied; leave out --with")
    return checked_step(own, made)


def _forked(find: Callable[[], GpuPeak]) -> GpuPeak:
    """Find a peak in a forked process. Raises `UsageError` with its sentence, `RuntimeError` if it dies."""

    def peak_text() -> tuple[str, int]:
        try:
            return find().model_dump_json(), 0
        except UsageError as error:
            return str(error), Status.UNAVAILABLE.exit_code
        except Exception as error:
            return f"{type(error).__name__}: {first_line(error)}", 1

    text, code = read_fork(*fork_writer(peak_text))
    if code == Status.UNAVAILABLE.exit_code:
        raise UsageError(text)
    if code:
        raise RuntimeError(text or f"the process of the step ended with exit code {code}")
    return GpuPeak.model_validate_json(text)


if __name__ == "__main__":
    sys.exit(main())
