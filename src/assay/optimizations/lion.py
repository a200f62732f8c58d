"""Lion: every element moves by the same step size, and only one moment is kept.

The update is the sign of a momentum, so it is larger than Adam's. The learning rate should be three to ten times
smaller and the decay larger by the same factor (arXiv:2302.06675, section 5). Here the peak learning rate is
`learning_rate`, in the shape of the run's schedule, and the decay of a step, η·λ, stays the run's. The state is 4 bytes
a parameter in float32. The proof counts signs and one moment, and reads learning rate, decay, β₁ and β₂ from the
parameter groups.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, PositiveFloat

from assay.config import ResolvedRun
from assay.optimizations.optimization import Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected, lossy
from assay.reference.rules import LionRule

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program

_UPDATE_ERROR = 0.03
"""Largest relative error of an update: one sign in some thousands may differ."""


class Lion(Optimization):
    """Lion in place of AdamW."""

    learning_rate: PositiveFloat = 1e-4
    """Peak learning rate; warm-up and cosine of the run keep their shape."""
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """β₁, share of the momentum in the sum with the gradient whose sign is the step."""
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    """β₂, decay of the momentum that is stored."""

    title: ClassVar = "Lion"
    stage: ClassVar = Stage.OPTIMIZER
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "half of Adam's optimizer state: 4 bytes a parameter; the update's square roots and divisions"
    pays: ClassVar = "a new search for the learning rate; small, noisy gradients count as much as large ones"
    sources: ClassVar = ("arXiv:2302.06675",)
    claims: ClassVar = frozenset({"optimizer"})

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost import update_rules

        return cost.updated_by(update_rules.LionUpdate())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizers.recipes import at_rate, lion, scale_schedule

        recipe = lion(at_rate(run.training, self.learning_rate), (self.beta1, self.beta2))
        return scale_schedule(replace(program, optimizer=recipe), self.learning_rate / run.training.learning_rate)

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        factor = self.learning_rate / run.training.learning_rate
        rule = LionRule(weight_decay=run.training.weight_decay / factor, beta1=self.beta1, beta2=self.beta2)
        # The sign of a sum near zero may be either.
        return expected.changed(rule=rule, rate_factor=factor).loosened(updates=lossy(_UPDATE_ERROR))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.optimizer_updates import decay_at, faults, updated_by

        signs, parameters = trace.count("aten.sign_", phase="update"), len(trace.trained)
        moved = min(signs, updated_by(trace, "aten.add_.Tensor"))
        state, weights = trace.memory.whole_optimizer_state_bytes, trace.trained_bytes
        wrong = faults(trace, decay_at(run.training, self.learning_rate), betas=(self.beta1, self.beta2))
        observed = (
            f"{moved} of {parameters} parameters updated by signs, "
            f"{state} bytes of state for {weights} bytes of weights"
        )
        return self.evidence(observed + wrong, moved == signs == parameters and state == weights and not wrong)
