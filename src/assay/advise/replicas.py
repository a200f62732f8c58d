"""Replicas: ranks that compute what one device computes, each on its share of the batch.

A plan knows products only, and GPT-2's block only. The time of a replica is that of its kernels, as `assay estimate
--device` predicts it, and of its collectives. They hide behind nothing here. Where no plan covers a model, its memory
is that of the ledger of a rank. So models such as Llama have layouts without tensor and pipeline groups.
"""

from dataclasses import dataclass
from typing import Any

from assay.advise.elements import Stack
from assay.advise.placed import Placed, figures
from assay.config.mesh import Mesh
from assay.config.run import ResolvedRun, Spec
from assay.cost.flop_conventions import palm
from assay.cost.work import communications
from assay.errors import UsageError
from assay.estimator.alpha_beta import seconds
from assay.estimator.device_memory import device_memory
from assay.estimator.estimate import estimate
from assay.estimator.plan import spread_of_plan
from assay.estimator.timing.step_time import StepTime
from assay.hardware import Machine
from assay.hardware.cluster import Cluster
from assay.optimizations import Numerics, mesh_of, numerics_of, optimizations_of, resolve_run


@dataclass(frozen=True)
class Replicated:
    """A kind of data parallelism with a stack, by the ledger of a rank."""

    stack: tuple[str, ...]
    """Techniques that are added to the configuration, as a user writes them."""
    run: ResolvedRun
    cluster: Cluster
    time: StepTime
    need_bytes: int
    """Most bytes in use on a device, with CUDA's context."""
    communication_seconds: float
    """Seconds of a step in which a rank waits for collectives."""
    idle_share: float = 0.0

    @property
    def title(self) -> str:
        """The techniques as a user writes them after ``--with``."""
        return "+".join(self.stack)

    @property
    def mesh(self) -> Mesh:
        """The mesh of all ranks."""
        return mesh_of(self.run)

    @property
    def numerics(self) -> Numerics:
        """The loosest promise of all techniques about the loss."""
        return numerics_of(self.run)

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.time.seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all ranks that are trained on in a second."""
        return self.run.tokens_per_step / self.seconds

    @property
    def communication_share(self) -> float:
        """Share of a step in which a rank waits for collectives."""
        return self.communication_seconds / self.seconds

    @property
    def mfu(self) -> float:
        """Share of the datasheet's peak that the model's own FLOPs take."""
        whole = self.cluster.size * self.cluster.datasheet.peak_flops
        return palm(self.run.model) * self.tokens_per_second / whole

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        return figures(self)


def replicate(run: ResolvedRun, machine: Machine, cluster: Cluster, kind: Spec, stack: Stack) -> Replicated | None:
    """Return a kind of data parallelism with a stack; None if a rank of it cannot run, or is not predicted.

    `machine` has one device of the cluster, with the rates of its datasheet.
    """
    added = (kind, *(each.spec for each in stack))
    asked = run.model_copy(update={"ranks": cluster.size, "optimizations": (*run.optimizations, *added)})
    try:
        found = estimate(asked, machine)
        alone = estimate(_share(found.run, run, cluster.size), machine).step_time
    except UsageError:
        return None
    memory = device_memory(found)
    if alone is None or memory is None or memory.total is None:
        return None
    waiting = seconds(communications(found.cost), mesh_of(found.run), cluster.network)
    time = StepTime(alone.seconds + waiting, alone.margin)
    return Replicated(tuple(map(str, added)), found.run, cluster, time, memory.total.high, waiting)


def step_time(placed: Placed, run: ResolvedRun, machine: Machine) -> StepTime:
    """Return the time of a step of a layout; `machine` has one of its devices, with the rates of its datasheet.

    A layout with tensor or pipeline groups keeps the time of its plan, with the errors of plans.
    """
    planned = StepTime(placed.seconds, factors=spread_of_plan(run.model))
    if placed.mesh.size != placed.mesh.dp:
        return planned
    try:
        alone = estimate(_share(placed.projection.run, run, placed.mesh.dp), machine).step_time
    except UsageError:
        return planned
    if alone is None or alone.margin is None:
        return planned
    return StepTime(alone.seconds + placed.communication_seconds, alone.margin)


def _share(there: ResolvedRun, run: ResolvedRun, ranks: int) -> ResolvedRun:
    """Return the step of one rank of a run: its share of the batch, with the techniques of one device."""
    kept = tuple(one.spec() for one in optimizations_of(there) if not one.axes())
    training = run.training.model_copy(update={"batch_size": run.training.batch_size // ranks})
    return resolve_run(run.model_copy(update={"training": training, "optimizations": kept, "ranks": 1}))
