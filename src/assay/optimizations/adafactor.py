"""Adafactor keeps only row and column means of a matrix's second moment, and no first moment.

    V̂ = R·C / mean(R),   U = G / √V̂,   step = η·max(ε, RMS(θ))·U / max(1, RMS(U))

The step is relative to the size of the weight, and its rate is at most 1/√t (arXiv:1804.04235). Torch's implementation,
used here, averages where the paper sums. State falls from 8 bytes a parameter to 4·(rows + columns) a matrix. The peak
learning rate is `learning_rate`, in the shape of the run's schedule; the decay of a step, η·λ, stays the run's.
Techniques that divide a matrix among ranks are refused, because no rank has whole rows and columns then. The proof
reads the learning rate from the parameter groups.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import PositiveFloat

from assay.config import ResolvedRun
from assay.optimizations.optimization import Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected
from assay.reference.rules import AdafactorRule

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


class Adafactor(Optimization):
    """Adafactor in place of AdamW."""

    learning_rate: PositiveFloat = 1e-2
    """Peak of the relative step, as in the paper; warm-up and cosine of the run keep their shape."""

    title: ClassVar = "Adafactor"
    stage: ClassVar = Stage.OPTIMIZER
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "nearly all optimizer state: row and column means in place of two moments"
    pays: ClassVar = "a coarser second moment, no momentum; three numbers a tensor read by the host in every update"
    sources: ClassVar = ("arXiv:1804.04235",)
    claims: ClassVar = frozenset({"optimizer", "weight decay"})
    traits: ClassVar = frozenset({"host reads"})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        why = "adafactor needs whole rows and columns, and {other} splits them; use data_parallel"
        return {"pieces of weights": why, "exchanged experts": why}

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost import matrix_updates

        return cost.updated_by(matrix_updates.AdafactorUpdate())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizers.recipes import adafactor, at_rate, scale_schedule

        recipe = adafactor(at_rate(run.training, self.learning_rate))
        return scale_schedule(replace(program, optimizer=recipe), self.learning_rate / run.training.learning_rate)

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        factor = self.learning_rate / run.training.learning_rate
        return expected.changed(rule=AdafactorRule(weight_decay=run.training.weight_decay / factor), rate_factor=factor)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.optimizer_updates import decay_at, faults, updated_by

        roots, parameters = trace.count("aten.rsqrt_", phase="update"), len(trace.trained)
        steps = min(roots, updated_by(trace, "aten.add_.Tensor"))
        state, weights = trace.memory.whole_optimizer_state_bytes, trace.trained_bytes
        wrong = faults(trace, decay_at(run.training, self.learning_rate))
        observed = (
            f"{steps} of {parameters} parameters updated by row and column factors, "
            f"{state} bytes of state for {weights} bytes of weights"
        )
        return self.evidence(observed + wrong, steps == roots == parameters and 0 < 2 * state < weights and not wrong)
