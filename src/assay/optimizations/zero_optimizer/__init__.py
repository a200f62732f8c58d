"""Replicas as in data parallelism, but each rank keeps optimizer state for, and updates, one shard of every weight.

Adam's two moments are the largest thing that replicas repeat: twice the weights, in float32. Sharded, they fall with
the number of ranks, and the updated shards are gathered once a step (the first stage of ZeRO, arXiv:1910.02054).
Gradients are summed on every rank during backward and stay whole; the paper's own first stage scatters them instead.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.cost.collectives import Communication
from assay.cost.kernels import CPU, Kernels
from assay.cost.operation import Tensor
from assay.cost.step_cost import Cost
from assay.cost.update_rules import Instant
from assay.optimizations.optimization import Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import HeldParameter, Trace, Updated

if TYPE_CHECKING:
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program

_AXIS = "dp"


@dataclass(frozen=True)
class _Division:
    """Division of one weight among the ranks."""

    weight: Tensor
    dimension: int
    ranks: int

    def piece(self, index: int) -> Tensor:
        """The shard that one rank updates."""
        return self.weight.piece(self.ranks, index, self.dimension)

    @property
    def gathered_bytes(self) -> int:
        """Bytes of all shards, padding included."""
        return self.ranks * self.piece(0).nbytes

    def gathering(self, kernels: Kernels) -> Instant:
        """Instant of the all-gather: the shards as they arrive, and their copy unless they arrive in place."""
        rows_in_place = self.dimension == 0 and kernels != CPU
        return Instant("all_gather", self.weight.name, (1 if rows_in_place else 2) * self.gathered_bytes)


def divide_update(cost: Cost, whole: Mapping[str, Tensor]) -> Cost:
    """The ledger of a replica whose optimizer updates shards of the weights; `whole` are the undivided weights.

    A rank updates a shard of each weight, along the first dimension that no other axis divides. Without such a
    dimension, every replica updates all that it has. The bias of a matrix whose rows tensor parallelism divides is an
    example. Then the shards of all ranks are gathered, one weight after the other, padded to equal length
    (arXiv:1910.02054). Shards along columns arrive one behind the other, and are copied once more into place. On a CPU
    every shard is copied: gloo gathers into a buffer of its own.
    """
    index = cost.place[_AXIS]
    divisions = dict(_divisions(cost, whole))
    pieces = {name: one.piece(index) for name, one in divisions.items()}
    sent = [
        Communication("all_gather", _AXIS, one.gathered_bytes, 1, "updated weights", one.weight.dtype)
        for one in divisions.values()
    ]
    gathers = tuple(one.gathering(cost.kernels) for one in divisions.values())
    optimizer = replace(cost.optimizer, shards=cost.trained | pieces, after=gathers)
    return replace(cost, optimizer=optimizer).sending(*sent)


def _divisions(cost: Cost, whole: Mapping[str, Tensor]) -> Iterator[tuple[str, _Division]]:
    for name, weight in cost.trained.items():
        if name in cost.sharding.owned:
            continue
        # A tied weight's copy at the other end of a pipeline has the shape of its original. A weight that a change of
        # the model has added is whole.
        lengths = enumerate(zip(weight.shape, whole.get(weight.name, weight).shape, strict=True))
        free = next((dimension for dimension, (here, there) in lengths if here == there), None)
        if free is not None:
            yield name, _Division(weight, free, cost.mesh.degree(_AXIS))


class ZeroOptimizer(Optimization):
    """Replicas of the weights, shards of the optimizer's state."""

    title: ClassVar = "sharded optimizer state (ZeRO stage 1)"
    stage: ClassVar = Stage.SHARD
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "optimizer state: 1/n of it on each rank; time and activations as data parallelism does"
    pays: ClassVar = "one all-gather of the updated weights a step: in total 1.5 times data parallelism's bytes"
    sources: ClassVar = ("arXiv:1910.02054",)
    claims: ClassVar = frozenset({"replicas", "update"})
    traits: ClassVar = frozenset({"pieces of weights"})

    def axes(self) -> Mapping[str, int | None]:
        return {"dp": None}

    def lay_out(self, layout: "Layout") -> "Layout":
        return replace(layout, zero=1)

    def predict(self, cost: Cost, run: ResolvedRun, machine: "Machine") -> Cost:
        from assay.cost.gpt_tape import parameters
        from assay.cost.rewrites.replicated_step import replica_ledger

        # A pipeline's rank that owns both ends has a copy of a tied embedding, under the name of an untied head.
        untied = run.model.model_copy(update={"tie_embeddings": False})
        return divide_update(replica_ledger(cost), parameters(untied))

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizations.zero_optimizer.step import divide_state
        from assay.parallel.fsdp import whole_replicas

        return divide_state(whole_replicas(program, program.parallel.axis("dp")))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.sharding import summed_once, wrong_share

        ranks = trace.ranks.get("dp", 1)
        held, whole = trace.memory.optimizer_state_bytes, trace.memory.whole_optimizer_state_bytes
        # A replica's state, as this rank would hold it if dp divided nothing; other axes may have divided it already.
        replica = whole * trace.memory.parameter_bytes / trace.memory.whole_parameter_bytes
        gathered = trace.communicated("all_gather", axis="dp", phase="update")
        pieces = [_piece(one, ranks, trace.place.get("dp", 0)) for one in trace.trained]
        due = {one.name: (one, piece) for one, (piece, _) in zip(trace.trained, pieces, strict=True)}
        right = sum(_fits(one, *due[one.name]) for one in trace.optimizer.updates if one.name in due)
        updated = sum(one.held_bytes for one in trace.trained)
        observed = (
            f"{held} of {replica:.0f} bytes of a replica's optimizer state held by this rank of {ranks}; "
            f"{gathered} bytes of updated weights gathered, for {updated} bytes of weights"
        )
        if right != len(trace.trained):
            observed += f"; {right} of {len(trace.trained)} weights have the state of this rank's shard"
        summed, once = summed_once(trace, run)
        wrong = wrong_share(trace, run) + ("" if once else f"; {summed}")
        divided = 0 < right == len(trace.trained) and held < replica
        shown = divided and gathered == sum(whole for _, whole in pieces) > 0
        return self.evidence(observed + wrong, ranks > 1 and shown and not wrong)


def _piece(one: HeldParameter, ranks: int, index: int) -> tuple[int, int]:
    """Elements of a weight that this rank updates, and the bytes of it that all ranks gather.

    A weight is cut along its first dimension that is whole. An expert that dp divides is updated by its owner and not
    gathered.
    """
    from assay.proofs.sharding import chunk

    free = next((axis for axis in range(len(one.shape)) if axis not in one.dimensions.values()), None)
    if free is None or "dp" in one.divided_over:
        return prod(one.shape), 0
    length, row = one.shape[free], prod(one.shape[:free] + one.shape[free + 1 :])
    return chunk(length, ranks, index) * row, chunk(length, ranks, 0) * ranks * row * _width(one)


def _fits(updated: Updated, weight: HeldParameter, elements: int) -> bool:
    """True if the optimizer updates this many elements, and no entry of its state is larger than they are."""
    sizes = [size for key, size in updated.state.items() if key != "step"]
    return updated.elements == elements and all(size <= elements * _width(weight) for size in sizes)


def _width(weight: HeldParameter) -> int:
    return weight.whole_bytes // max(1, prod(weight.whole_shape))
