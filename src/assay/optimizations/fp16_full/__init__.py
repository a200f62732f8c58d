"""Keep weights, gradients and optimizer state in float16, and compute everything but loss and update in it.

Mixed precision was made to avoid this (arXiv:1710.03740, section 3.1). A weight moves only when the step is larger than
a 4096th of it. Small updates that would add up are lost one by one, and unscaled gradients below 6e-8 are zero. Torch's
AdamW cannot run at all, since the square of a small gradient is zero in float16. The update here is computed in
float32, tensor by tensor, and keeps the root of the second moment. The loss scale is that of `fp16_mixed`. The loss is
summed in float32. Checkpoints and exports keep the dtype.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.cost.update_rules import AdamWUpdate, Instant, Pieces, beside, in_order
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected, Rounding, lossy, summed_in_16_bits
from assay.reference.rules import NarrowStateAdamWRule

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import NamedParameters, OptimizerLike, Program

_LIFTED = 4
"""Number of float32 copies during an update: gradient, two moments and weight."""


@dataclass(frozen=True)
class AdamW16Update(AdamWUpdate):
    """AdamW with moments in the weight's dtype, which updates one tensor at a time in float32."""

    passes: ClassVar = 71.0
    launches: ClassVar = 18.0

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """Float32 copies of one tensor after the other, and a number that divides one."""
        lifted = (one.cast("float32") for one in in_order(pieces))
        return tuple(Instant("AdamW16", one.name, _LIFTED * one.nbytes, beside(one)) for one in lifted)


_GRADIENT_ERROR, _UPDATE_ERROR = 0.05, 0.5
"""Largest relative errors of one tensor."""
_SLOPE_ERROR = 0.01
"""Largest error of a gradient's scale."""
_LOSS_ERROR = 1.5e-4
"""Largest relative error of the loss."""
_ROUNDED = 2**-15
"""Relative error that float16 must cause in some gradient."""
_NEAR = lossy(
    _GRADIENT_ERROR,
    at_least=_ROUNDED,
    slope=_SLOPE_ERROR,
    loss=_LOSS_ERROR,
    rounding=Rounding(dtype="float16", everywhere=True),
)


class Fp16Full(Optimization):
    """All weights, gradients, state and arithmetic but loss and update in float16."""

    title: ClassVar = "full 16-bit training (float16)"
    stage: ClassVar = Stage.PRECISION
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.LOSSY
    saves: ClassVar = "half of weights, gradients, optimizer state and activations; time where float16 is native"
    pays: ClassVar = "updates smaller than a 4096th of a weight are lost; skipped updates; an AdamW of its own"
    sources: ClassVar = ("arXiv:1710.03740",)
    claims: ClassVar = frozenset({"forward precision", "loss scale", "optimizer", "weight decay"})
    traits: ClassVar = frozenset({"16-bit products", "16-bit state", "host reads"})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        return {"stages": "{other} runs backward without a loss scale; use bf16_mixed instead of fp16_full"}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.n_expert is not None:
            raise Conflict(
                "the router of a mixture of experts must stay in float32; use fp16_mixed instead of fp16_full"
            )

    def unadvised(self, run: ResolvedRun, machine: "Machine") -> str:
        return "weights in 16 bits lose small updates"

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.rewrites.low_precision import narrow_ledger

        return (
            narrow_ledger(cost, "float16").updated_by(AdamW16Update()).reading_every(1)
        )  # its scaler reads each step's norm

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        import torch

        from assay.model.narrow import narrow
        from assay.optimizations.fp16_full.step import AdamW16
        from assay.parallel.loss_scale import DynamicLossScale

        narrow(program.parts, torch.float16)
        scale, given = DynamicLossScale(), program.optimizer

        def optimizer(parameters: "NamedParameters") -> "OptimizerLike":
            return AdamW16(given(parameters).param_groups)

        return replace(
            program,
            optimizer=optimizer,
            precision=replace(program.precision, loss_scale=scale),
            stateful={**program.stateful, "loss_scale": scale},
        )

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        rule = NarrowStateAdamWRule(
            **expected.rule.model_dump(exclude={"coupled"}), dtype="half", keeps_root=True, narrow_weight=True
        )
        tokens = run.training.batch_size * run.model.context_length
        return expected.changed(rule=rule).loosened(
            gradients=_NEAR.model_copy(update={"vectors": summed_in_16_bits(2**-12, tokens)}),
            updates=lossy(_UPDATE_ERROR),
        )

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.precision import held_in_16_bits, loss_scale_evidence

        held, narrow = held_in_16_bits("float16", trace)
        scaling, divided = loss_scale_evidence(trace)
        return self.evidence(f"{held}; {scaling}", narrow and divided)
