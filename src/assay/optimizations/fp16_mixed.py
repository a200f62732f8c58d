"""Compute matrix products in float16 under a dynamic loss scale; keep weights, gradients and state in float32.

float16 has more digits than bfloat16 and a smaller range: numbers below 6e-8 are zero, numbers above 65504 are not
finite. So the loss is multiplied by a scale before backward, and gradients are divided by it before they are measured
and clipped (arXiv:1710.03740). An overflow skips the update and halves the scale; the record has both. Where even a
scale of 1 overflows the run ends as diverged. The technique is for hardware without bfloat16: a CPU without AVX512-FP16
converts, and is many times slower than in float32. The router of a mixture of experts stays in float32.

Without the scaler, the part of each gradient that is too small for float16 is lost. The loss is a mean over tokens, so
more is lost in steps of more tokens. In `demo` with two layers of width 32, gradients are off by 0.6 % at 4,096 tokens
and by 16 % at 32,768. This choice is for studies of the scaler. The value check then bounds the loss, but no gradient.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.hardware import AMPERE
from assay.optimizations.optimization import Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected, Rounding, lossy

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program

_GRADIENT_ERROR = 0.03
"""Largest relative error of one gradient."""
_SLOPE_ERROR = 0.01
"""Largest error of a gradient's scale."""
_LOSS_ERROR = 1.5e-4
"""Largest relative error of the loss."""
_ROUNDED = 2**-15
"""Relative error that float16 must cause in some gradient."""
_LOST = 1.0
"""Largest relative error of one gradient without a scaler, which loses it whole."""
_PARTLY_LOST = lossy(_LOST, at_least=_ROUNDED, slope=_LOST, loss=_LOSS_ERROR)
_NEAR = lossy(
    _GRADIENT_ERROR, at_least=_ROUNDED, slope=_SLOPE_ERROR, loss=_LOSS_ERROR, rounding=Rounding(dtype="float16")
)


class Fp16Mixed(Optimization):
    """Automatic mixed precision in float16."""

    scaler: bool = True
    """Multiply the loss by a dynamic scale. Without it small gradients are lost; only for studies of the scaler."""

    title: ClassVar = "mixed precision (float16)"
    stage: ClassVar = Stage.PRECISION
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.LOSSY
    saves: ClassVar = "half of the saved tensors of matrix products; time where float16 is native"
    pays: ClassVar = "a float16 copy of every weight during the step; skipped updates; a host read before each update"
    sources: ClassVar = ("arXiv:1710.03740",)
    practice: ClassVar = "models of up to 175 B parameters, with a loss scale (arXiv:2205.01068)"
    claims: ClassVar = frozenset({"forward precision", "loss scale"})
    traits: ClassVar = frozenset({"16-bit products", "host reads"})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        if not self.scaler:
            return {}
        return {"stages": "{other} runs backward without a loss scale; use bf16_mixed instead of fp16_mixed"}

    def unadvised(self, run: ResolvedRun, machine: "Machine") -> str:
        device = machine.device(run.device)
        if device == "cuda" and not machine.older_than(AMPERE):
            return "bf16_mixed saves as much on this GPU, and needs no loss scale"
        rates = machine.rates.get(device)
        if device == "cpu" and rates is not None and rates.counted:
            return "bf16_mixed takes as much arithmetic where no device is named, and needs no loss scale"
        return ""

    def known_loss(self, run: ResolvedRun, machine: "Machine") -> str:
        return machine.converts("float16", run.device)

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.rewrites.low_precision import autocast

        narrow = autocast(cost, "float16")
        return narrow.reading_every(1) if self.scaler else narrow  # a scaler reads each step's norm

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        import torch

        from assay.parallel.loss_scale import DynamicLossScale
        from assay.step.program import Context, Precision

        context: Context = partial(torch.autocast, program.device.type, dtype=torch.float16)
        contexts = (*program.precision.forward_contexts, context)
        if not self.scaler:
            return replace(program, precision=replace(program.precision, forward_contexts=contexts))
        scale = DynamicLossScale()
        return replace(
            program,
            precision=Precision(contexts, scale),
            stateful={**program.stateful, "loss_scale": scale},
        )

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected.loosened(gradients=_NEAR if self.scaler else _PARTLY_LOST)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.precision import loss_scale_evidence, not_scaled, products_in

        products, narrow = products_in("float16", trace, run)
        scaling, right = (loss_scale_evidence if self.scaler else not_scaled)(trace)
        return self.evidence(f"{products}; {scaling}", narrow and right)
