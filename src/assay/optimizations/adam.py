"""Adam with weight decay added to the gradient, as it was before AdamW decoupled the two.

Adam divides such a decay by the gradient's size, so weights with large gradients hardly decay. AdamW corrects this
(arXiv:1711.05101). Everything else is AdamW's: two moments, 8 bytes a parameter in float32. Without weight decay the
two are the same, and the run is refused.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class Adam(Optimization):
    """Adam in place of AdamW."""

    title: ClassVar = "Adam"
    stage: ClassVar = Stage.OPTIMIZER
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "nothing: it serves as a comparison for AdamW"
    pays: ClassVar = (
        "weight decay that is weak for large gradients; a copy of one gradient; 8 bytes of state a parameter"
    )
    sources: ClassVar = ("arXiv:1412.6980", "arXiv:1711.05101")
    claims: ClassVar = frozenset({"optimizer", "weight decay"})

    def lay_out(self, layout: "Layout") -> "Layout":
        # A plan counts only an optimizer's state, and that equals AdamW's.
        return layout

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if not run.training.weight_decay:
            raise Conflict("without weight decay adam equals AdamW; set training.weight_decay above 0 to compare them")

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost import update_rules

        return cost.updated_by(update_rules.AdamUpdate())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizers.recipes import adam

        return replace(program, optimizer=adam(run.training))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected.changed(rule=expected.rule.model_copy(update={"coupled": True}))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.optimizer_updates import adamw_faults, updated_by

        updates, parameters = trace.count("addcdiv_", phase="update"), len(trace.trained)
        joined = trace.count("aten.add.Tensor", phase="update") - trace.count("aten.reciprocal", phase="update")
        shrunk = trace.count("aten.mul_", phase="update") - trace.count("aten.lerp_", phase="update")
        matrices, wrong = sum(len(one.whole_shape) >= 2 for one in trace.trained), adamw_faults(trace, run.training)
        observed = f"weight decay added to {joined} of {updates} gradients, and applied to {shrunk} weights directly"
        whole = 0 < updated_by(trace, "aten.addcdiv_") == parameters == updates
        if not whole or joined != matrices:
            observed += f"; expected were {parameters} gradients, {matrices} of them with decay"
        return self.evidence(observed + wrong, whole and joined == matrices and shrunk == 0 and not wrong)
