"""Layouts with their memory and time, by a plan or as replicas, and the answer over several absent GPUs as plain data.

Replicas are ranks that compute what one device computes, each on its share of the batch. A plan knows products only,
and GPT-2's block only. The time of a replica is that of its kernels, as `assay estimate --device` predicts it, and of
its collectives. They hide behind nothing here. Its memory is that of the ledger of a rank, which also decides whether
it fits. Layouts with tensor or pipeline groups have the memory of their plan, and CUDA's context. Where no plan covers
a model, such as Llama, there are replicas only.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any, Protocol

from assay.advise.elements import Stack
from assay.config.mesh import AXES, Mesh
from assay.config.run import ResolvedRun, Spec
from assay.cost.flop_conventions import palm
from assay.cost.work import communications
from assay.errors import UsageError
from assay.estimator.alpha_beta import seconds
from assay.estimator.cost import Training
from assay.estimator.device_memory import CONTEXT, need_of
from assay.estimator.estimate import estimate
from assay.estimator.plan import spread_of_plan
from assay.estimator.projection import Projection
from assay.estimator.timing.gpu_time import HOST_MARGIN
from assay.estimator.timing.step_time import StepTime
from assay.hardware import Machine
from assay.hardware.cluster import Cluster
from assay.optimizations import Numerics, mesh_of, numerics_of, optimizations_of, resolve_run

_AT_LEAST = 0.75
"""Share of a plan's memory that the ledger of a replica has at least."""


@dataclass(frozen=True)
class Placed:
    """A layout with a stack, and its plan."""

    stack: tuple[str, ...]
    """Techniques that are added to the configuration, as a user writes them."""
    place: int
    """Place of the stack of one device in the search there; 0 is the best."""
    projection: Projection

    @property
    def title(self) -> str:
        """The techniques as a user writes them after ``--with``."""
        return "+".join(self.stack)

    @property
    def mesh(self) -> Mesh:
        """The mesh of all ranks."""
        return self.projection.plan.layout.mesh

    @property
    def numerics(self) -> Numerics:
        """The loosest promise of all techniques about the loss."""
        return numerics_of(self.projection.run)

    @cached_property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.projection.plan.step_seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all ranks that are trained on in a second."""
        return self.projection.plan.tokens_per_second

    @cached_property
    def need_bytes(self) -> int:
        """Most bytes in use on the device of the rank that holds most, with CUDA's context.

        Replicas have those of the ledger of a rank, other layouts those of the plan.
        """
        if self.mesh.replicas:
            return need_of("device")(estimate(self.projection.run, self.projection.cluster.machine))
        return ceil(self.projection.plan.memory_bytes) + CONTEXT.high

    @property
    def least_bytes(self) -> int:
        """Quick lower bound of the need, without a ledger."""
        return (
            ceil(_AT_LEAST * self.projection.plan.memory_bytes) + CONTEXT.low if self.mesh.replicas else self.need_bytes
        )

    def fits(self, budget_bytes: int) -> bool:
        """True if the rank that holds most stays within a budget."""
        return self.least_bytes <= budget_bytes and self.need_bytes <= budget_bytes

    @property
    def communication_seconds(self) -> float:
        """Seconds of a step in which the busiest rank waits for collectives; sends of a pipeline are idle time."""
        planned, network = self.projection.plan, self.projection.cluster.network
        collectives = [one for one in planned.communications if one.axis != "pp"]
        return seconds(collectives, self.mesh, network)

    @property
    def communication_share(self) -> float:
        """Share of a step in which the busiest rank waits for collectives."""
        return self.communication_seconds / self.seconds

    @property
    def idle_share(self) -> float:
        """Share of a step in which an average rank waits for its pipeline."""
        planned = self.projection.plan
        return planned.bubble * planned.played.makespan_seconds / self.seconds

    @property
    def mfu(self) -> float:
        """Share of the datasheet's peak that the model's own FLOPs take."""
        return self.projection.mfu

    @property
    def simplicity(self) -> tuple[int, int, int]:
        """Key of the simplest among equally fast ones: the better stack, fewer techniques, fewer micro-batches."""
        return self.place, len(self.stack), self.projection.plan.layout.micro_batches

    @property
    def preference(self) -> tuple[int, int, int, int, float]:
        """Key of the best among equally fast ones: the simplest, of these the one that needs least."""
        return *self.simplicity, self.need_bytes, self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        return figures(self, micro_batches=self.projection.plan.layout.micro_batches)


class Layout(Protocol):
    """A layout with its figures, by a plan or by the ledger of a rank."""

    @property
    def title(self) -> str:
        """The techniques as a user writes them."""

    @property
    def mesh(self) -> Mesh:
        """The mesh of all ranks."""

    @property
    def numerics(self) -> Numerics:
        """The loosest promise of all techniques about the loss."""

    @property
    def seconds(self) -> float:
        """Seconds of a step."""

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all ranks in a second."""

    @property
    def need_bytes(self) -> int:
        """Bytes of the rank that holds most."""

    @property
    def communication_share(self) -> float:
        """Share of a step in which a rank waits for collectives."""

    @property
    def idle_share(self) -> float:
        """Share of a step in which a rank waits for its pipeline."""

    @property
    def mfu(self) -> float:
        """Share of the peak that the model's own FLOPs take."""

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""


@dataclass(frozen=True)
class LayoutAdvice:
    """The layout to train with, within a budget of memory for each rank. All of it is planned from datasheets."""

    run: ResolvedRun
    cluster: Cluster
    budget_bytes: int
    recommended: Layout
    step_time: StepTime
    """Time of a step of the recommended layout, from and to (`replicas.step_time`)."""
    configuration: str
    """The preset, file or folder that was asked about."""
    frontier: tuple[Layout, ...]
    """The fastest one that fits, and those that trade time for memory."""
    runners_up: tuple[Layout, ...]
    """The fastest one of each other mesh."""
    candidates: int
    """Layouts with their stacks that were planned."""
    refused: int
    """Combinations that a check refuses."""
    lossy: tuple[str, ...]
    """Techniques that the limit of the loss leaves out."""
    unplanned: tuple[str, ...]
    """Techniques of one device that no plan expresses, or that run on one device only."""
    warnings: tuple[str, ...]
    sources: tuple[str, ...]
    """Configuration, device and date of each measured change of the loss that the answer uses."""
    words: str
    """The configuration as words of a command."""

    planned: bool = True
    """False if no plan covers the model, so that only replicas were searched, by the ledger of a rank."""

    @property
    def command(self) -> str:
        """The command that plans the recommended layout again; the one that trains it, if no plan covers the model."""
        if not self.planned:
            return self.train_command or ""
        nodes = f"--nodes {self.cluster.nodes} --gpus-per-node {self.cluster.gpus_per_node} --gpu {self.cluster.gpu}"
        return f"assay plan {self.words} {nodes} --with {self.recommended.title}"

    @property
    def train_command(self) -> str | None:
        """The command that trains so on one node; None for several, which no command of assay starts."""
        if self.cluster.nodes > 1:
            return None
        return f"assay train {self.words} --nproc {self.cluster.size} --with {self.recommended.title}"

    def training(self, tokens: float, price: float | None = None) -> Training:
        """Return the training of the recommended layout on so many tokens, at a price for an hour of one GPU."""
        time = self.step_time
        return Training(
            tokens=tokens,
            tokens_per_step=self.run.tokens_per_step,
            step_seconds=time.seconds,
            spread=time.spread,
            devices=self.cluster.size,
            price=price,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        return {
            "device": self.cluster.gpu,
            "nodes": self.cluster.nodes,
            "gpus_per_node": self.cluster.gpus_per_node,
            "budget_bytes": self.budget_bytes,
            "recommended": self.recommended.to_dict(),
            "step_seconds": self.step_time.seconds,
            "command": self.command,
            "train_command": self.train_command,
            "frontier": [one.to_dict() for one in self.frontier],
            "runners_up": [one.to_dict() for one in self.runners_up],
            "candidates": self.candidates,
            "refused_by_checks": self.refused,
            "refused": list(self.lossy),
            "unplanned": list(self.unplanned),
            "warnings": list(self.warnings),
            "measured": False,
        }


def figures(layout: Layout, **more: int) -> dict[str, Any]:
    """Return all figures of a layout as plain values, with more of its own kind."""
    return {
        "optimizations": layout.title,
        "mesh": {axis: layout.mesh.degree(axis) for axis in AXES},
        **more,
        "tokens_per_second": layout.tokens_per_second,
        "step_seconds": layout.seconds,
        "need_bytes": layout.need_bytes,
        "communication_share": layout.communication_share,
        "idle_share": layout.idle_share,
        "mfu": layout.mfu,
        "numerics": layout.numerics.value,
    }


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


def replicate(run: ResolvedRun, machine: Machine, cluster: Cluster, kind: Spec, stack: Stack) -> Replicated:
    """Return a kind of data parallelism with a stack. Raises `UsageError` if a rank cannot run, or is not predicted.

    `machine` has one device of the cluster, with the rates of its datasheet.
    """
    added = (kind, *(each.spec for each in stack))
    asked = run.model_copy(update={"ranks": cluster.size, "optimizations": (*run.optimizations, *added)})
    found = estimate(asked, machine)
    need = need_of("device")(found)
    alone = estimate(_share(found.run, run, cluster.size), machine).step_time
    if alone is None:
        raise UsageError("the time of a step is not predicted by kernels")
    waiting = seconds(communications(found.cost), mesh_of(found.run), cluster.network)
    time = StepTime(alone.seconds + waiting, alone.margin)
    return Replicated(tuple(map(str, added)), found.run, cluster, time, need, waiting)


def step_time(placed: Placed, run: ResolvedRun, machine: Machine) -> StepTime:
    """Return the time of a step of a layout; `machine` has one of its devices, with the rates of its datasheet.

    A layout with tensor or pipeline groups keeps the time of its plan, with the errors of plans. If the host takes
    longer to queue a rank's launches, that is the time.
    """
    planned = StepTime(placed.seconds, factors=spread_of_plan(run.model))
    try:
        alone = estimate(_of_rank(placed, run), machine).step_time
    except UsageError:
        return planned
    if alone is None or alone.margin is None:
        return planned
    if placed.mesh.replicas:
        return StepTime(alone.seconds + placed.communication_seconds, alone.margin)
    queueing = _queueing(placed, alone)
    return planned if queueing <= planned.seconds else StepTime(queueing, HOST_MARGIN)


def _of_rank(placed: Placed, run: ResolvedRun) -> ResolvedRun:
    """Return the step of one device with a rank's share of the batch, and the micro-batches of its pipeline."""
    layout = placed.projection.plan.layout
    alone = _share(placed.projection.run, run, layout.mesh.dp)
    if layout.mesh.pp == 1 or layout.micro_batches == 1:
        return alone
    cut = Spec(name="gradient_accumulation", fields={"micro_batches": layout.micro_batches})
    return resolve_run(alone.model_copy(update={"optimizations": (*alone.optimizations, cut)}))


def _queueing(placed: Placed, alone: StepTime) -> float:
    """Return the seconds in which a host queues a rank's launches.

    Tensor groups divide the work of each launch, and not their number. A stage has the launches of its blocks.
    """
    host, _ = alone.apart or (0.0, 0.0)
    model = placed.projection.run.model
    return host * max(placed.projection.plan.layout.layers(model)) / model.n_layer


def _share(there: ResolvedRun, run: ResolvedRun, ranks: int) -> ResolvedRun:
    """Return the step of one rank of a run: its share of the batch, with the techniques of one device."""
    kept = tuple(one.spec() for one in optimizations_of(there) if not one.axes())
    training = run.training.model_copy(update={"batch_size": run.training.batch_size // ranks})
    return resolve_run(run.model_copy(update={"training": training, "optimizations": kept, "ranks": 1}))
