"""The time of a step whose ranks are replicas: kernels of one rank's share, as on one device, and its collectives.

A plan knows products only, so it is far too fast for small models. Replicas compute what one device computes on their
share of the batch, so `assay estimate --device` predicts that part, with its margin. Collectives wait for nothing and
hide behind nothing. A layout with tensor or pipeline groups keeps its plan.
"""

from assay.advise.placed import Placed
from assay.config.run import ResolvedRun, Spec
from assay.errors import UsageError
from assay.estimator.estimate import estimate
from assay.estimator.plan import spread_of_plan
from assay.estimator.timing.step_time import StepTime
from assay.hardware import Machine
from assay.optimizations import optimizations_of, resolved


def step_time(placed: Placed, run: ResolvedRun, machine: Machine) -> StepTime:
    """Return the time of a step of a layout; `machine` has one of its devices, with the rates of its datasheet."""
    planned = StepTime(placed.seconds, factors=spread_of_plan(run.model))
    if placed.mesh.size != placed.mesh.dp:
        return planned
    try:
        alone = estimate(_share(placed, run), machine).step_time
    except UsageError:
        return planned
    if alone is None or alone.margin is None:
        return planned
    return StepTime(alone.seconds + placed.communication_seconds, alone.margin)


def _share(placed: Placed, run: ResolvedRun) -> ResolvedRun:
    """Return the step of one rank: its share of the batch, with the techniques of one device."""
    there = placed.projection.run
    kept = tuple(Spec(name=one.name(), fields=one.spec().fields) for one in optimizations_of(there) if not one.axes())
    training = run.training.model_copy(update={"batch_size": run.training.batch_size // placed.mesh.dp})
    return resolved(run.model_copy(update={"training": training, "optimizations": kept, "ranks": 1}))
