"""AdamW in one kernel: every moment is read once, and there are no temporaries.

The plain loop launches a dozen kernels for every parameter and writes its denominator to memory twice. Torch's
`fused=True` updates all tensors of a group in one launch. The numbers are the same, rounded in another order. It keeps
two moments of every parameter, 8 bytes in float32, as the plain loop does. A parameter group with `fused=None` of its
own ignores the optimizer's argument. Its update is then the plain one, bit for bit, and only its kernels show it.

Where weights and moments are in 16 bits, the kernel computes in float32 and rounds three results: the plain loop rounds
every operation.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.optimizations.base import Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected
from assay.reference.narrow_rules import NarrowAdamW, NarrowStateAdamW

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.analytic.layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class FusedAdamw(Optimization):
    """The baseline's AdamW as one kernel for each group of parameters."""

    title: ClassVar = "fused AdamW"
    stage: ClassVar = Stage.OPTIMIZER
    usual: ClassVar = True
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "time of the update: one kernel instead of a dozen a tensor; all of its temporaries"
    pays: ClassVar = "nothing: 8 bytes of state a parameter, as before"
    sources: ClassVar = ("arXiv:1711.05101", "pytorch/pytorch#71274")
    claims: ClassVar = frozenset({"optimizer"})

    def lay_out(self, layout: "Layout") -> "Layout":
        # A plan counts only an optimizer's state, and that does not change.
        return layout

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.optimizers.adam import FusedAdamW

        return cost.updated_by(FusedAdamW())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizers.recipes import adamw

        return replace(program, optimizer=adamw(run.training, "fused"))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        found = super().expect(expected, run)
        if not isinstance(found.rule, NarrowAdamW):
            return found
        formula = found.rule.model_dump(exclude={"coupled", "rounds_factors"})
        return found.changed(rule=NarrowStateAdamW(**formula, dtype="bfloat16", narrow_weight=True))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.updates import adamw_faults, updated_by

        calls, parameters = trace.count("_fused_adamw_", phase="update"), len(trace.parameters)
        fused, apart = updated_by(trace, "aten._fused_adamw_"), trace.count("addcdiv", phase="update")
        wrong = adamw_faults(trace, run.training)
        observed = f"{calls} fused kernels updated {fused} of {parameters} parameters, {apart} updates were not fused"
        return self.evidence(observed + wrong, 0 < fused == parameters and apart == 0 and not wrong)
