"""Compute attention with torch's fused kernel, which never writes the scores to memory.

The hand-coded core keeps the `[B, heads, T, T]` probabilities of every layer for backward. The fused kernel (flash
attention, arXiv:2205.14135) saves one number a row and head instead. In backward it recomputes the scores, tile by
tile. On a CPU torch's kernel has no dropout: with dropout it would silently fall back to unfused mathematics.

Torch has several kernels. `flash` (arXiv:2307.08691) and `cudnn` run on GPUs, in 16 bits; `efficient`
(memory-efficient, arXiv:2112.05682) runs on GPUs, in any precision. `flash` also runs on a CPU. `math` writes the
scores to memory in float32 and saves nothing: it serves for comparison. If it runs without being chosen, the proof
fails.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from assay.config import ResolvedRun
from assay.hardware import AMPERE, HOPPER
from assay.optimizations.optimization import Numerics, Optimization, Stage, Unavailable, Unplanned
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected

if TYPE_CHECKING:
    from assay.cost import Cost, Tape
    from assay.cost.mesh_layout import Layout
    from assay.cost.operation import Tensor
    from assay.hardware import Machine
    from assay.step.program import Program


_IN_16_BITS = ("flash", "cudnn")
"""GPU kernels that take 16-bit inputs only."""
_MAY_HIDE_MASKS = ("auto", "cudnn")
"""Kernels of which cuDNN's may be one, which shows no mask of dropout."""
_TORCHS = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
}


class SdpaAttention(Optimization):
    """Scaled dot-product attention through `torch.nn.functional.scaled_dot_product_attention`."""

    backend: Literal["auto", "flash", "efficient", "cudnn", "math"] = "auto"
    """Kernel of torch: `auto` is torch's choice among the fused ones, `math` writes the scores to memory."""

    title: ClassVar = "fused attention (SDPA)"
    stage: ClassVar = Stage.KERNEL
    usual: ClassVar = "less memory and less time at the same loss"
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "the T × T probabilities of every layer and head, and the time to write and read them"
    pays: ClassVar = "recomputation of the scores in backward: 7 attention products instead of 6"
    sources: ClassVar = ("arXiv:2205.14135", "arXiv:2307.08691", "pytorch/pytorch#195460")
    claims: ClassVar = frozenset({"attention core"})

    def lay_out(self, layout: "Layout") -> "Layout":
        if self.backend == "math":
            raise Unplanned(f"{self.name()}:backend=math")
        # The kernel recomputes the same as selective recomputation does, except for one of its two products.
        return replace(layout, recompute="selective")

    def bears(self) -> frozenset[str]:
        return super().bears() | {f"attention in backend {self.backend}"}

    def requires(self, run: ResolvedRun, machine: "Machine") -> Mapping[str, str]:
        if machine.device(run.device) == "cpu" or self.backend not in _IN_16_BITS:
            return {}
        said = f"sdpa_attention:backend={self.backend} computes in 16 bits only; add bf16_mixed, or use "
        return {"16-bit products": said + "backend=efficient"}

    def measured_gain(self, run: ResolvedRun, machine: "Machine") -> str:
        if self.backend != "auto" or machine.device(run.device) != "cuda" or machine.older_than(HOPPER) is not None:
            return ""
        return "with backend=cudnn a step of GPT-2 124M took 5 % less time on an H200, 25.8 ms in place of 27.2"

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if machine.device(run.device) != "cpu":
            self._check_cuda(run, machine)
        elif self.backend in ("efficient", "cudnn"):
            raise Unavailable(f"sdpa_attention:backend={self.backend} needs a CUDA device; on a CPU use flash or math")
        elif run.model.dropout > 0 and self.backend != "math":
            raise Unavailable(
                "sdpa_attention with dropout has no fused kernel on a CPU and would fall back to unfused attention; "
                "set model.dropout=0 or use a CUDA device"
            )

    def _check_cuda(self, run: ResolvedRun, machine: "Machine") -> None:
        if self.backend not in _IN_16_BITS:
            return
        if older := machine.older_than(AMPERE):
            raise Unavailable(
                f"sdpa_attention:backend={self.backend} needs a GPU of compute capability 8.0 (Ampere) or newer; "
                f"on {older.name} use backend=efficient"
            )

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        found = super().expect(expected, run)
        return found.changed(shows_masks=found.shows_masks and self.backend not in _MAY_HIDE_MASKS)

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.attention_tape import flash, math_attention
        from assay.cost.layers import Writer
        from assay.cost.rewrites.attention_cores import exchange_core

        def fused(site: str, q: "Tensor", k: "Tensor", v: "Tensor") -> "Tape":
            writer = Writer(site, {q.name: q, k.name: k, v.name: v})
            if self.backend == "math":
                math_attention(writer, q, k, v, run.model.dropout, cost.kernels)
            else:
                flash(writer, q, k, v, cost.kernels, self.backend, noisy=run.model.dropout > 0)
            return tuple(writer.operations)

        return exchange_core(cost, fused).with_tables_read()

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from torch.nn.attention import SDPBackend

        from assay.model import Attention
        from assay.model import SdpaAttention as Core

        forced = None if self.backend == "auto" else getattr(SDPBackend, _TORCHS[self.backend])
        for part in program.parts:
            for module in part.modules():
                if isinstance(module, Attention):
                    module.core = Core(run.model, forced)
        return program

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        fused = trace.count(*self._fused_kernels(), phase="forward") - trace.count("attention_math", phase="forward")
        layers = len(trace.blocks) * trace.forwards
        # Over ranks that divide a sequence, each layer computes attention once for the keys of every rank.
        wanted = layers * trace.ranks.get("cp", 1)
        # A mixture's router has a softmax of its own in every layer.
        routers = layers if run.model.n_expert is not None else 0
        safe = trace.count("aten._safe_softmax", phase="forward")
        unfused = trace.count("aten._softmax", phase="forward") + safe - routers
        if self.backend == "math":
            observed = f"{safe} of {wanted} softmaxes written out by torch's unfused attention, {fused} fused kernels"
            return self.evidence(observed, safe == unfused == wanted and fused == 0)
        observed = f"{fused} of {wanted} calls of attention in a fused kernel, {unfused} softmaxes written out"
        if self.backend != "auto":
            observed += f" (backend={self.backend})"
        return self.evidence(observed, fused == wanted and unfused == 0)

    def _fused_kernels(self) -> tuple[str, ...]:
        """Substrings of the fused kernels' operator names; the CPU's flash kernel shares the name of the GPU's."""
        one = {"flash": "flash_attention", "efficient": "efficient_attention", "cudnn": "cudnn_attention"}
        return (f"_scaled_dot_product_{one[self.backend]}",) if self.backend in one else ("_scaled_dot_product",)
