"""Weights, gradients and optimizer state are spread over the ranks; each block's weights are gathered when it runs.

The three stages of ZeRO (arXiv:1910.02054) in torch's second engine for it (arXiv:2304.11277): with `reshard` a block's
weights are freed after its forward and gathered again for its backward (stage 3); without, they stay until backward is
done (stage 2). Gradients leave each block's backward as a reduce-scatter.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from assay.config import Run
from assay.optimizations.base import Numerics, Optimization, Stage, Unpredicted
from assay.step import Evidence, Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


class FullySharded(Optimization):
    """Shards of everything that a replica holds between steps."""

    reshard: bool = True
    """Free a block's weights between its forward and its backward."""

    title: ClassVar = "fully sharded data parallelism"
    stage: ClassVar = Stage.SHARD
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "weights, gradients and optimizer state: 1/n of each on each rank"
    pays: ClassVar = (
        "the weights gathered once or twice a step, and one reduce-scatter: 1.5 times data parallelism's bytes"
    )
    sources: ClassVar = ("arXiv:1910.02054", "arXiv:2304.11277")
    claims: ClassVar = frozenset({"replicas"})

    def axes(self) -> Mapping[str, int | None]:
        return {"dp": None}

    def predict(self, cost: "Cost", run: Run, machine: "Machine") -> "Cost":
        raise Unpredicted(self.name())

    def apply(self, program: "Program", run: Run) -> "Program":
        from torch.distributed.fsdp import fully_shard

        from assay.parallel.sharded import replicas

        mesh = program.axis("dp")
        return replicas(
            program,
            mesh,
            lambda module, apart: fully_shard(
                module, mesh=mesh, reshard_after_forward=self.reshard, ignored_params=apart
            ),
        )

    def verify(self, trace: Trace, run: Run) -> Evidence:
        held, whole = trace.parameter_bytes, trace.whole_parameter_bytes
        observed = f"{held} of {whole} bytes of weights held by this rank"
        return self.evidence(observed, 0 < held < whole)
