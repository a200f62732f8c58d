"""Context parallelism whose attention gathers keys and values, on any device: slow, and plain to read."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from assay.optimizations import Numerics, Optimization, Stage

if TYPE_CHECKING:
    from assay.config import Run
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.records.evidence import Evidence
    from assay.records.trace import Trace
    from assay.step.program import Program


class GatheredContext(Optimization):
    """What `context_parallel` does, with another core."""

    title: ClassVar = "context parallelism by gathering"
    stage: ClassVar = Stage.SEQUENCE
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "activations"
    pays: ClassVar = "gathered keys and values"
    sources: ClassVar = ("a test",)

    def axes(self) -> Mapping[str, int | None]:
        return {"cp": 2}

    def predict(self, cost: "Cost", run: "Run", machine: "Machine") -> "Cost":
        return cost

    def apply(self, program: "Program", run: "Run") -> "Program":
        from assay.model import Attention
        from assay.optimizations.context_parallel.step import divide_positions

        mesh = program.parallel.axis("cp")
        program = divide_positions(program, mesh, run.model.context_length)
        for part in program.parts:
            for module in part.modules():
                if isinstance(module, Attention):
                    module.core = _core(mesh, module.positions)
        return program

    def verify(self, trace: "Trace", run: "Run") -> "Evidence":
        gathered = trace.communicated("all_gather", axis="cp", phase="forward")
        return self.evidence(f"{gathered} bytes gathered", gathered > 0)


def _core(mesh: Any, own: Any) -> Any:
    import torch
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    def whole(x: Any, dimension: int) -> Any:
        spread = DTensor.from_local(x.contiguous(), mesh, [Shard(dimension)])
        return spread.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])

    class Gathered(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            k, v, places = whole(k, 2), whole(v, 2), whole(own, 0)
            scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
            return scores.masked_fill(places[None] > own[:, None], float("-inf")).softmax(-1) @ v

    return Gathered()
