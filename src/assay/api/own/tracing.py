"""The peak of a step from its program on fake tensors."""

from assay.api.configuration import Source, Stack, configure, predictable
from assay.api.own.results import TracedStep
from assay.config.home import Home
from assay.errors import UsageError


def trace(source: Source = None, *overrides: str, optimizations: Stack = ()) -> TracedStep:
    """Predict the peak memory of one optimizer step by tracing its program on fake tensors, in a process of its own.

    `source` may be a model of the user's own, ``module:function``. Nothing is trained, and no weight is allocated.
    Raises `UsageError` as a run would, and if a trace cannot follow the step.
    """
    from assay.hardware import detect
    from assay.launch.own import trace_own_step
    from assay.optimizations import check, mesh_of, resolve_run

    with predictable(configure(source, overrides, optimizations), Home()) as known:
        run = resolve_run(known)
        if mesh_of(run).size > 1:
            raise UsageError("a trace is of the step of one device; leave out techniques that divide it among ranks")
        check(run, detect())
    return TracedStep.of(trace_own_step(run))
