"""Compute attention with torch's fused kernel, which never writes the scores out.

The hand-coded core keeps the `[B, heads, T, T]` probabilities of every layer for backward. The fused kernel (flash
attention, arXiv:2205.14135) keeps one number a row and head instead, and computes the scores again in backward, tile by
tile. On a CPU torch's kernel has no dropout: with dropout it would silently fall back to unfused mathematics.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import Run
from assay.optimizations.base import Numerics, Optimization, Stage, Unavailable
from assay.step import Evidence, Trace

if TYPE_CHECKING:
    from assay.cost import Cost, Tape
    from assay.cost.layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class SdpaAttention(Optimization):
    """Scaled dot-product attention through `torch.nn.functional.scaled_dot_product_attention`."""

    title: ClassVar = "fused attention (SDPA)"
    stage: ClassVar = Stage.KERNEL
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "the T × T probabilities of every layer and head, and the time to write and read them"
    pays: ClassVar = "the scores once more in backward: 7 attention products instead of 6"
    sources: ClassVar = ("arXiv:2205.14135", "arXiv:2307.08691", "pytorch/pytorch#195460")
    claims: ClassVar = frozenset({"attention core"})

    def lay_out(self, layout: "Layout") -> "Layout":
        # What the kernel makes again is what selective recomputation does, but for one of its two products.
        return replace(layout, recompute="selective")

    def check(self, run: Run, machine: "Machine") -> None:
        if run.model.dropout > 0 and machine.device(run.device) == "cpu":
            raise Unavailable(
                "sdpa_attention with dropout has no fused kernel on a CPU and would fall back to unfused mathematics; "
                "set model.dropout=0 or use a CUDA device"
            )

    def predict(self, cost: "Cost", run: Run, machine: "Machine") -> "Cost":
        from assay.cost.attention import flash
        from assay.cost.tape import Writer

        values = cost.values

        def fused(core: "Tape") -> "Tape":
            made = {tensor.name for operation in core for tensor in operation.outputs}
            read = dict.fromkeys(name for operation in core for name in operation.inputs if name not in made)
            q, k, v = (values[name] for name in read if values[name] not in cost.tables)
            writer = Writer(core[0].site, {q.name: q, k.name: k, v.name: v})
            flash(writer, q, k, v)
            return tuple(writer.operations)

        return cost.rewrite(lambda site: ".attention.core" in site, fused)

    def apply(self, program: "Program", run: Run) -> "Program":
        from assay.model import Attention
        from assay.model import SdpaAttention as Core

        for part in program.parts:
            for module in part.modules():
                if isinstance(module, Attention):
                    module.core = Core(run.model)
        return program

    def verify(self, trace: Trace, run: Run) -> Evidence:
        fused = trace.count("_scaled_dot_product", phase="forward") - trace.count("attention_math", phase="forward")
        layers = len(trace.blocks) * trace.forwards
        # Over ranks that divide a sequence, each layer meets the keys of every rank in turn.
        wanted = layers * trace.ranks.get("cp", 1)
        # A mixture's router has a softmax of its own in every layer.
        routers = layers if run.model.n_expert is not None else 0
        unfused = trace.count("aten._softmax", "aten._safe_softmax", phase="forward") - routers
        observed = f"{fused} of {wanted} attention layers in a fused kernel, {unfused} softmaxes written out"
        return self.evidence(observed, fused == wanted and unfused == 0)
