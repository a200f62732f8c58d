"""Every rank holds the whole model and trains on its share of the batch; gradients are summed before the update.

The all-reduce overlaps backward, block by block (Li et al. 2020, arXiv:2006.15704). Memory for activations falls with
the number of ranks; memory for weights, gradients and optimizer state does not.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.optimizations.optimization import Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


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

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.rewrites.replicated_step import replica_ledger

        return replica_ledger(cost)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.parallel.fsdp import whole_replicas

        return whole_replicas(program, program.parallel.axis("dp"))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.sharding import summed_once, wrong_share

        observed, exact = summed_once(trace, run)
        wrong = wrong_share(trace, run)
        if sent := trace.communicated("broadcast", "all_gather", phase="update"):
            wrong += f"; {sent} bytes broadcast or gathered in the update"
        return self.evidence(observed + wrong, trace.ranks.get("dp", 1) > 1 and exact and not wrong)
