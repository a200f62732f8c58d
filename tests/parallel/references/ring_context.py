"""Context parallelism by torch's own ring over a CPU's fused kernel, to which torch's dispatcher has no way."""

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


class RingContext(Optimization):
    """What `context_parallel` does, its ring called by hand."""

    degree: int = 2
    """Ranks among which the positions of a sequence are divided."""

    title: ClassVar = "context parallelism by torch's ring"
    stage: ClassVar = Stage.SEQUENCE
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "activations"
    pays: ClassVar = "keys and values"
    sources: ClassVar = ("a test",)

    def axes(self) -> Mapping[str, int | None]:
        return {"cp": self.degree}

    def predict(self, cost: "Cost", run: "Run", machine: "Machine") -> "Cost":
        from assay.optimizations.context_parallel.ledger import divide_context

        return divide_context(cost)

    def apply(self, program: "Program", run: "Run") -> "Program":
        from assay.model import Attention
        from assay.optimizations.context_parallel.step import divide_positions

        mesh = program.parallel.axis("cp")
        for part in program.parts:
            for module in part.modules():
                if isinstance(module, Attention):
                    module.core = _core(mesh.get_group())
        return divide_positions(program, mesh, run.model.context_length)

    def verify(self, trace: "Trace", run: "Run") -> "Evidence":
        passed = trace.communicated("all_to_all", axis="cp", phase="backward")
        return self.evidence(f"{passed} bytes of gradients passed on", passed > 0)


def _core(group: Any) -> Any:
    import torch
    from torch.distributed.tensor.experimental._context_parallel import _attention as torchs

    aten = torch.ops.aten

    def kernel(query: Any, key: Any, value: Any, is_causal: bool) -> Any:
        return aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal)

    def kernel_backward(*, is_causal: bool, **tensors: Any) -> Any:
        operator = aten._scaled_dot_product_flash_attention_for_cpu_backward
        return operator(**tensors, dropout_p=0.0, is_causal=is_causal)

    class Ring(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            out, row_sums = torchs._templated_ring_attention(group, 2, kernel, q, k, v, is_causal=True)
            ctx.save_for_backward(q, k, v, out, row_sums)
            return out

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return torchs._templated_ring_attention_backward(
                group, 2, kernel_backward, gradient, "grad_out", *ctx.saved_tensors, is_causal=True
            )

    class Core(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            k, v = (x.repeat_interleave(q.size(1) // x.size(1), dim=1) if x.size(1) != q.size(1) else x for x in (k, v))
            return Ring.apply(q, k, v)

    return Core()
