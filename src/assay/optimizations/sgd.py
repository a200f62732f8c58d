"""Stochastic gradient descent with momentum: one moment a parameter in place of Adam's two.

    b ← μ·b + g      θ ← θ − η·b        (Nesterov: θ ← θ − η·(g + μ·b))

Steps are proportional to gradients, whose sizes differ by orders of magnitude between the tensors of a transformer. At
a rate that suits one tensor the others hardly move, so SGD ends far above Adam at equal steps (arXiv:2010.13154,
arXiv:2402.16788). The peak learning rate is `learning_rate`, in the shape of the run's schedule; decay is added to the
gradient. The state is 4 bytes a parameter in float32, and none without momentum. The proof reads momentum, decay and
learning rate from the parameter groups, and counts the parameters that were updated.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat

from assay.config import ResolvedRun, TrainingConfig
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected
from assay.reference.rules import SGDRule

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


class Sgd(Optimization):
    """SGD in place of AdamW."""

    learning_rate: PositiveFloat = 0.1
    """Peak learning rate; warm-up and cosine of the run keep their shape."""
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Momentum μ, the share of the last step's direction that is kept; 0 keeps no state at all."""
    nesterov: bool = False
    """Use Nesterov's momentum: step by g + μ·b in place of b."""
    weight_decay: NonNegativeFloat = 1e-4
    """Decay λ, added as λ·θ to the gradients of those parameters that decay in the run."""

    title: ClassVar = "SGD with momentum"
    stage: ClassVar = Stage.OPTIMIZER
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "half of Adam's optimizer state: 4 bytes a parameter, or all of it without momentum"
    pays: ClassVar = (
        "a far higher loss on transformers in long runs; its large rate may lead in the first tens of steps"
    )
    sources: ClassVar = ("arXiv:1512.03385", "arXiv:2010.13154", "arXiv:2402.16788")
    claims: ClassVar = frozenset({"optimizer", "weight decay"})

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if self.nesterov and not self.momentum:
            raise Conflict("sgd:nesterov=true needs a momentum; set sgd:momentum above 0")

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.update_rules import SGDUpdate

        return cost.updated_by(SGDUpdate(self.momentum > 0, self.nesterov, self.weight_decay > 0))

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizers.recipes import scale_schedule, sgd

        recipe = sgd(self._training(run), self.momentum, nesterov=self.nesterov)
        factor = self.learning_rate / run.training.learning_rate
        return scale_schedule(replace(program, optimizer=recipe), factor)

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        rule = SGDRule(weight_decay=self.weight_decay, momentum=self.momentum, nesterov=self.nesterov)
        return expected.changed(rule=rule, rate_factor=self.learning_rate / run.training.learning_rate)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.optimizer_updates import faults, updated_by

        state, weights = trace.memory.whole_optimizer_state_bytes, trace.trained_bytes
        adaptive = trace.count("addcdiv", "_fused_adam", "sign", "rsqrt", phase="update")
        # Decay is added to gradients of matrices, Nesterov's momentum to all; clipping adds an epsilon to their norm.
        parameters, sums = len(trace.trained), trace.count("aten.add.Tensor", phase="update")
        sums -= trace.count("aten.reciprocal", phase="update")
        ahead = sums > parameters if self.weight_decay else sums >= parameters
        moved = updated_by(trace, "aten.add_.Tensor")
        observed = f"{state} bytes of momentum for {weights} bytes of weights, {adaptive} adaptive updates"
        if ahead or self.nesterov:
            observed += f", {sums} additions of decay and momentum to {parameters} gradients"
        if moved != parameters:
            observed += f", {moved} of {parameters} parameters updated"
        held = state == (weights if self.momentum else 0) and moved == parameters
        wrong = faults(trace, self.weight_decay, momentum=self.momentum, nesterov=float(self.nesterov))
        return self.evidence(observed + wrong, held and adaptive == 0 and ahead is self.nesterov and not wrong)

    def _training(self, run: ResolvedRun) -> TrainingConfig:
        own = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
        return run.training.model_copy(update=own)
