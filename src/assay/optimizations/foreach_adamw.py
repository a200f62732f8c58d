"""AdamW over lists: each operation of the update runs once for all tensors of a group.

On a GPU a few large kernels replace thousands of small ones, which the host could not launch fast enough. On a CPU
torch loops over the list, so only Python overhead is saved. The denominators of a whole group are alive at once; the
plain loop has two at a time (torch's `foreach=True`). It keeps two moments of every parameter, 8 bytes in float32, as
the plain loop does.

On a CPU torch's list operation rounds a factor to the dtype of the tensors that it multiplies. With weights in bfloat16
β₂ = 0.99 is then 0.988. At a learning rate of 0.001 there is no weight decay at all (seen in torch 2.11 and 2.13).
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.optimizations.optimization import Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected
from assay.reference.rules import NarrowAdamWRule

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class ForeachAdamw(Optimization):
    """The baseline's AdamW, each of its operations over all parameters at once."""

    title: ClassVar = "AdamW over lists"
    stage: ClassVar = Stage.OPTIMIZER
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "time of the update, where the launch of kernels dominates it"
    pays: ClassVar = "a copy as large as the decayed weights during the update; 8 bytes of state a parameter, as before"
    sources: ClassVar = ("arXiv:1711.05101", "pytorch/pytorch#58833")
    claims: ClassVar = frozenset({"optimizer", "weight decay"})

    def lay_out(self, layout: "Layout") -> "Layout":
        # A plan counts only an optimizer's state, and that does not change.
        return layout

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.update_rules import ForeachAdamWUpdate

        return cost.updated_by(ForeachAdamWUpdate())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizers.recipes import adamw

        return replace(program, optimizer=adamw(run.training, "foreach"))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        from assay.hardware import detect

        found = super().expect(expected, run)
        if not isinstance(found.rule, NarrowAdamWRule) or detect().device(run.device) != "cpu":
            return found
        return found.changed(rule=found.rule.model_copy(update={"rounds_factors": True}))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.optimizer_updates import adamw_faults, updated_by

        calls, parameters = trace.count("_foreach_addcdiv", phase="update"), len(trace.trained)
        listed = updated_by(trace, "aten._foreach_addcdiv_.ScalarList", "aten._foreach_addcdiv_.Scalar")
        apart = trace.count(".addcdiv", "_fused_adam", phase="update")
        wrong = adamw_faults(trace, run.training)
        observed = f"{calls} list updates for {listed} of {parameters} parameters, {apart} updates in other kernels"
        return self.evidence(observed + wrong, 0 < listed == parameters and apart == 0 and not wrong)
