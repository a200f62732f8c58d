"""Every rank holds the whole model and trains on its share of the batch; gradients are summed before the update.

The all-reduce overlaps backward, block by block (Li et al. 2020, arXiv:2006.15704). Memory for activations falls with
the number of ranks; memory for weights, gradients and optimizer state does not.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from assay.config import Run
from assay.optimizations.base import Numerics, Optimization, Stage
from assay.step import Evidence, Trace
from assay.step.trace import Phase

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program

_FIGURES = 24
"""Largest number of bytes of a step's figures: its loss, and the norms of two activations."""


class DataParallel(Optimization):
    """Replicas of the model that divide the batch."""

    title: ClassVar = "data parallelism"
    stage: ClassVar = Stage.SHARD
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "time, and activations: each rank computes its share of the batch"
    pays: ClassVar = "one all-reduce of all gradients a step: 2(n−1)/n of their bytes sent by each rank"
    sources: ClassVar = ("arXiv:2006.15704", "arXiv:1802.05799")
    claims: ClassVar = frozenset({"replicas"})

    def axes(self) -> Mapping[str, int | None]:
        return {"dp": None}

    def lay_out(self, layout: "Layout") -> "Layout":
        return layout

    def predict(self, cost: "Cost", run: Run, machine: "Machine") -> "Cost":
        from assay.cost.replicas import replicated

        return replicated(cost)

    def apply(self, program: "Program", run: Run) -> "Program":
        from assay.parallel.sharded import whole_replicas

        return whole_replicas(program, program.axis("dp"))

    def verify(self, trace: Trace, run: Run) -> Evidence:
        # Under a pipeline the all-reduce begins after the last stage's backward; torch issues it from forward.
        phases: tuple[Phase, ...] = ("backward", "forward") if trace.ranks.get("pp", 1) > 1 else ("backward",)
        reduced = sum(trace.communicated("all_reduce", axis="dp", phase=phase) for phase in phases)
        shared = sum(one.held_bytes for one in trace.parameters if "dp" not in one.divided_over)
        observed = f"{reduced} bytes summed over the ranks, for {shared} bytes of gradients"
        # Forward also sums a step's figures, and the loads of a mixture's experts.
        beside = _FIGURES + 16 * trace.forwards * len(trace.blocks) * (run.model.n_expert or 0)
        exact = reduced == shared or ("forward" in phases and shared < reduced <= shared + beside)
        return self.evidence(observed, trace.ranks.get("dp", 1) > 1 and shared > 0 and exact)
