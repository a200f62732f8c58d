"""Train at a part of the learning rate.

The rate of each step is the schedule's, times a factor. Weights move less in a step, so a run needs more of them. It is
an example: `training.learning_rate` does the same.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import PositiveFloat

from assay.config import ResolvedRun
from assay.optimizations import Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


class HalvedRate(Optimization):
    """A learning rate that is a part of the schedule's."""

    factor: PositiveFloat = 0.5
    """Number by which the schedule's rate is multiplied."""

    title: ClassVar = "halved learning rate"
    stage: ClassVar = Stage.STEP
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "nothing"
    pays: ClassVar = "patience"
    sources: ClassVar = ("an example",)
    claims: ClassVar = frozenset({"learning rate"})

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        """Return the cost as it is: no operation is added, and no byte."""
        return cost

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        """Multiply the schedule, which is a seam of the program."""
        schedule = program.schedule
        return replace(program, schedule=lambda step: self.factor * schedule(step))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        """State the rate that the value check must find in each update."""
        return expected.changed(rate_factor=expected.rate_factor * self.factor)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        """Compare the rate of the traced step with those of the optimizer's groups."""
        rates = {group.settings.get("lr") for group in trace.optimizer.groups}
        observed = f"{len(trace.optimizer.updates)} parameters updated at the rate {trace.optimizer.learning_rate:.3g}"
        return self.evidence(observed, rates == {trace.optimizer.learning_rate})
