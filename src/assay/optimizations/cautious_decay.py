"""Cautious weight decay: an element decays only if the step moves it towards zero, or not at all.

Decoupled decay shrinks every weight by η·λ, also where the gradient asks for a larger one. Here a weight decays only if
its sign is that of its update u, or one of them is zero (arXiv:2510.12402, algorithm 1):

    θ ← θ − η·(u + λ·[u·θ ≥ 0]·θ)

λ is the run's, and nothing is to be tuned anew. It acts on AdamW's plain loop, and on optimizers of ours that pass the
direction of their step to their decay. Others claim the decay as their own, and are refused. AdamW's u has the sign of
its first moment. Signs are multiplied in place of numbers, since a product of small numbers would be rounded to zero. A
weight in 16 bits is refused: it is too coarse to shrink by η·λ. The proof counts the parameters whose signs were
compared.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected
from assay.reference.rules import Rule

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class CautiousDecay(Optimization):
    """Decay of the elements whose sign is that of their update."""

    title: ClassVar = "cautious weight decay"
    stage: ClassVar = Stage.DECAY
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "steps to a given loss, according to its paper; no bytes"
    pays: ClassVar = "twelve passes over each weight that decays; a copy of one weight at a time"
    sources: ClassVar = ("arXiv:2510.12402",)
    claims: ClassVar = frozenset({"weight decay"})

    def lay_out(self, layout: "Layout") -> "Layout":
        # A plan counts only an optimizer's state, and that does not change.
        return layout

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        return {"16-bit state": "{other} rounds weights too coarsely to shrink by cautious_decay; leave one out"}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if not run.training.weight_decay:
            raise Conflict("without weight decay cautious_decay does nothing; set training.weight_decay above 0")

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        rule: Any = cost.optimizer.rule  # of an optimizer that does not claim its decay, and so has the field
        return cost.updated_by(replace(rule, cautious=True))

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizers.recipes import cautious

        return replace(program, optimizer=cautious(program.optimizer))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected.changed(rule=_cautious(expected.rule))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        matrices = sum(len(one.whole_shape) >= 2 for one in trace.trained)
        compared = trace.count("aten.ge_", phase="update")
        return self.evidence(
            f"{compared} of {matrices} decaying parameters compared with their updates", 0 < compared == matrices
        )


def _cautious(rule: Rule) -> Rule:
    """Return a rule that decays with caution, and so does the rule of the tensors that it leaves to another."""
    others = getattr(rule, "others", None)
    return rule.model_copy(update={"cautious": True, **({} if others is None else {"others": _cautious(others)})})
