"""Keep weights, gradients and optimizer state in bfloat16, and compute everything but the loss in it.

This halves every byte, without copies or casts. The price is in the update. With 8 bits of mantissa, a weight moves
only when the step is larger than a 512th of it (arXiv:2010.06192). A gain of 1 does not move at a learning rate of
0.001. Small updates that would add up are lost one by one. Adam's second moment cannot decay by less than a 512th
either, so β₂ = 0.999 does nothing. Gradients of micro-batches are also accumulated in 8 bits. Only the loss is summed
in float32, because in bfloat16 it could not be read. Checkpoints and exports keep the dtype.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.hardware import AMPERE
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unavailable
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected, Rounding, lossy, summed_in_16_bits
from assay.reference.rules import AdamWRule, NarrowAdamWRule

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program

_GRADIENT_ERROR, _UPDATE_ERROR = 0.1, 0.05
"""Largest relative errors of one tensor."""
_SLOPE_ERROR = 0.05
"""Largest error of a gradient's scale."""
_LOSS_ERROR = 1.5e-3
"""Largest relative error of the loss."""
_ROUNDED = 2**-12
"""Relative error that bfloat16 must cause in some gradient."""
_NEAR = lossy(
    _GRADIENT_ERROR,
    at_least=_ROUNDED,
    slope=_SLOPE_ERROR,
    loss=_LOSS_ERROR,
    rounding=Rounding(dtype="bfloat16", everywhere=True),
)


class Bf16Full(Optimization):
    """All weights, gradients, state and arithmetic but the loss in bfloat16."""

    title: ClassVar = "full 16-bit training (bfloat16)"
    stage: ClassVar = Stage.PRECISION
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.LOSSY
    saves: ClassVar = "half of weights, gradients, optimizer state and activations; time where bfloat16 is native"
    pays: ClassVar = "updates smaller than a 512th of a weight are lost, so training stalls early"
    sources: ClassVar = ("arXiv:1905.12322", "arXiv:2010.06192")
    claims: ClassVar = frozenset({"forward precision"})
    traits: ClassVar = frozenset({"16-bit products", "16-bit state"})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        return {"stages": "the stages of {other} communicate in float32; use bf16_mixed instead of bf16_full"}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.n_expert is not None:
            raise Conflict(
                "the router of a mixture of experts must stay in float32; use bf16_mixed instead of bf16_full"
            )
        if machine.device(run.device) == "cuda" and (older := machine.older_than(AMPERE)):
            raise Unavailable(
                f"bf16_full needs a GPU of compute capability 8.0 (Ampere) or newer; {older.name} is older"
            )

    def unadvised(self, run: ResolvedRun, machine: "Machine") -> str:
        return "weights in 16 bits lose small updates"

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.rewrites.low_precision import narrow_ledger

        return narrow_ledger(cost, "bfloat16")

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        import torch

        from assay.model.narrow import narrow

        narrow(program.parts, torch.bfloat16)
        return program

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        narrow = NarrowAdamWRule(**expected.rule.model_dump()) if type(expected.rule) is AdamWRule else expected.rule
        tokens = run.training.batch_size * run.model.context_length
        return expected.changed(rule=narrow).loosened(
            gradients=_NEAR.model_copy(update={"vectors": summed_in_16_bits(2**-9, tokens)}),
            updates=lossy(_UPDATE_ERROR),
        )

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.precision import held_in_16_bits

        return self.evidence(*held_in_16_bits("bfloat16", trace))
