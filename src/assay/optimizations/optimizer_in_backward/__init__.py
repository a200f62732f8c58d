"""Update a parameter as soon as its gradient is complete, and free the gradient at once.

The plain step keeps all gradients until the last one is complete: as many bytes as the weights. Here each gradient is
used and freed while backward continues, so that hardly more than one is alive at a time. The method is that of Lv et
al. 2023 (arXiv:2306.09782) and of torch's tutorial on fusing the optimizer's step into backward. The update is the
plain one, tensor by tensor, and bit-equal to it.

Anything that needs all gradients first is excluded: clipping to the global norm, a second micro-batch, gradients of
other ranks, a loss scale. A step that is not finite has spoiled weights before it is noticed. It ends the run as usual,
but the weight that is named is then the first spoiled one, not the cause.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


class OptimizerInBackward(Optimization):
    """One optimizer for each parameter, which steps inside backward."""

    title: ClassVar = "optimizer step in backward"
    stage: ClassVar = Stage.STEP
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.EXACT
    saves: ClassVar = "gradients: one at a time, instead of all of them at the end of backward"
    pays: ClassVar = "no clipping to a global norm, which needs all gradients; no skipped update if one is not finite"
    sources: ClassVar = ("arXiv:2306.09782", "pytorch/tutorials: optimizer_step_in_backward_tutorial")
    claims: ClassVar = frozenset({"update", "micro_batches", "loss scale"})
    traits: ClassVar = frozenset({"update in backward"})

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.training.gradient_clip > 0:
            raise Conflict(
                "optimizer_in_backward updates weights before all gradients exist, so it cannot clip to their global "
                f"norm ({run.training.gradient_clip:g}); set training.gradient_clip=0"
            )
        if run.ranks > 1:
            raise Conflict(
                "optimizer_in_backward updates weights before gradients are summed over ranks; use it on one device"
            )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        return replace(cost, optimizer=replace(cost.optimizer, in_backward=True))

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizations.optimizer_in_backward.step import update_in_backward

        return update_in_backward(program)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.optimizer_updates import whole_updates

        largest, parameters = max((one.held_bytes for one in trace.trained), default=0), len(trace.trained)
        whole = min(trace.optimizer.updates_in_backward, whole_updates(trace))
        most, left = trace.memory.gradients_together_bytes, trace.memory.gradient_bytes
        observed = (
            f"{whole} of {parameters} parameters updated in backward; at most "
            f"{most} bytes of gradients at once, {left} at its end"
        )
        alone = 0 < most <= largest and left == 0
        return self.evidence(observed, alone and whole == trace.optimizer.updates_in_backward == parameters)
