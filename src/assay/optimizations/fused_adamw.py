"""AdamW in one kernel: every moment is read once, and there are no temporaries.

The plain loop launches a dozen kernels for every parameter and writes its denominator to memory twice. Torch's
`fused=True` updates all tensors of a group in one launch. The numbers are the same, rounded in another order. It keeps
two moments of every parameter, 8 bytes in float32, as the plain loop does. A parameter group with `fused=None` of its
own ignores the optimizer's argument. Its update is then the plain one, bit for bit, and only its kernels show it.

Where weights and moments are in 16 bits, the kernel computes in float32 and rounds three results: the plain loop rounds
every operation.

With `clip=inside` the kernel clips as well: it divides each gradient as it reads it. A plain step first multiplies all
gradients, 4 bytes read and 4 written a parameter; the kernel writes 4. The host reads no norm. If the norm is not
finite, the kernel leaves weights and moments as they were.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected
from assay.reference.rules import NarrowAdamWRule, NarrowStateAdamWRule

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class FusedAdamw(Optimization):
    """The baseline's AdamW as one kernel for each group of parameters."""

    clip: Literal["apart", "inside"] = "apart"
    """Place where gradients are clipped: in passes of their own, or inside the kernel."""

    title: ClassVar = "fused AdamW"
    stage: ClassVar = Stage.OPTIMIZER
    usual: ClassVar = "a faster update at the same memory"
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "time of the update: one kernel instead of a dozen a tensor; all of its temporaries"
    pays: ClassVar = "nothing: 8 bytes of state a parameter, as before"
    sources: ClassVar = ("arXiv:1711.05101", "pytorch/pytorch#71274")
    claims: ClassVar = frozenset({"optimizer", "weight decay"})

    def lay_out(self, layout: "Layout") -> "Layout":
        # A plan counts only an optimizer's state, and that does not change.
        return layout

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        if self.clip == "apart":
            return {}
        return {"update": "{other} makes an update of its own, which clips by itself; use fused_adamw:clip=apart"}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if self.clip == "apart":
            return
        if run.training.gradient_clip == 0:
            raise Conflict("fused_adamw:clip=inside has nothing to clip, because training.gradient_clip=0")
        if run.ranks > 1:
            raise Conflict("fused_adamw:clip=inside is proven on one device only; leave it out of runs over ranks")

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.update_rules import ClippingAdamW, FusedAdamWUpdate

        return cost.updated_by(ClippingAdamW() if self.clip == "inside" else FusedAdamWUpdate())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizers.recipes import adamw

        fused = replace(program, optimizer=adamw(run.training, "fused"))
        if self.clip == "apart":
            return fused
        from assay.optimizers.clipping import clipping_inside

        return replace(fused, update=clipping_inside(run.training.gradient_clip))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        from assay.reference.expected import REASSOCIATED

        found = super().expect(expected, run)
        if self.clip == "inside":  # gradients are divided by a number, where the plain step multiplies by its inverse
            found = found.loosened(gradients=REASSOCIATED)
        if not isinstance(found.rule, NarrowAdamWRule):
            return found
        formula = found.rule.model_dump(exclude={"coupled", "rounds_factors"})
        return found.changed(rule=NarrowStateAdamWRule(**formula, dtype="bfloat16", narrow_weight=True))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.optimizer_updates import adamw_faults, updated_by

        calls, parameters = trace.count("_fused_adamw_", phase="update"), len(trace.trained)
        fused, apart = updated_by(trace, "aten._fused_adamw_"), trace.count("addcdiv", phase="update")
        wrong = adamw_faults(trace, run.training)
        observed = f"{calls} fused kernels updated {fused} of {parameters} parameters, {apart} updates were not fused"
        right = 0 < fused == parameters and apart == 0 and not wrong
        if self.clip == "inside":
            # Torch takes the skipped updates back out of the counts where a kernel was given such a flag.
            given, passes = (trace.count(name, phase="update") for name in ("_foreach_sub_", "_foreach_mul_"))
            observed += f"; {given} of {calls} kernels clip, and {passes} passes over all gradients do"
            right = right and given == calls and passes == 0
        return self.evidence(observed + wrong, right)
