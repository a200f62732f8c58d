"""Replicas as in data parallelism, but each rank keeps the optimizer's state of, and updates, a piece of every weight.

Adam's two moments are the largest thing that replicas repeat: twice the weights, in float32. Divided, they fall with
the number of ranks, and the updated pieces are gathered once a step (the first stage of ZeRO, arXiv:1910.02054).
Gradients are summed on every rank during backward and stay whole; the paper's own stage scatters them instead.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import Run
from assay.optimizations.base import Numerics, Optimization, Stage
from assay.step import Evidence, Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program

_REMAINDER = 0.1
"""Share of the state that may be held beyond an even part: of tensors that another axis has split along their only
dimension, or that the ranks do not divide evenly."""


class ZeroOptimizer(Optimization):
    """Replicas of the weights, shards of the optimizer's state."""

    title: ClassVar = "sharded optimizer state (ZeRO stage 1)"
    stage: ClassVar = Stage.SHARD
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "optimizer state: 1/n of it on each rank; time and activations as data parallelism does"
    pays: ClassVar = "the updated weights gathered once a step: half as much again as data parallelism sends"
    sources: ClassVar = ("arXiv:1910.02054",)
    claims: ClassVar = frozenset({"replicas", "update"})
    traits: ClassVar = frozenset({"pieces of weights"})

    def axes(self) -> Mapping[str, int | None]:
        return {"dp": None}

    def lay_out(self, layout: "Layout") -> "Layout":
        return replace(layout, zero=1)

    def predict(self, cost: "Cost", run: Run, machine: "Machine") -> "Cost":
        from assay.cost.parameters import parameters
        from assay.cost.replicas import replicated
        from assay.cost.zero import divided

        return divided(replicated(cost), parameters(run.model))

    def apply(self, program: "Program", run: Run) -> "Program":
        from assay.parallel.sharded import whole_replicas
        from assay.parallel.zero import divide_state

        return divide_state(whole_replicas(program, program.axis("dp")))

    def verify(self, trace: Trace, run: Run) -> Evidence:
        ranks = trace.ranks.get("dp", 1)
        held, whole = trace.optimizer_state_bytes, trace.whole_optimizer_state_bytes
        # What this rank would hold if dp divided nothing: another axis may have split weights and their state alike.
        replica = whole * trace.parameter_bytes / trace.whole_parameter_bytes
        # Experts that dp has divided already are updated where they lie.
        own = sum(one.held_bytes for one in trace.parameters if "dp" in one.divided_over)
        kept = replica * own / trace.parameter_bytes
        gathered = trace.communicated("all_gather", axis="dp", phase="update")
        observed = (
            f"{held} of {replica:.0f} bytes of a replica's optimizer state held by this rank of {ranks}; "
            f"{gathered} bytes of updated weights gathered, for {trace.parameter_bytes} bytes of weights"
        )
        divided = kept < held <= kept + (replica - kept) * (1 / ranks + _REMAINDER)
        return self.evidence(observed, ranks > 1 and divided and gathered > 0)
