"""NorMuon normalizes the rows of Muon's updates, so that no neuron learns faster than others.

Muon's direction is nearly orthogonal, but its rows, one for each neuron, have unequal norms. NorMuon keeps a moving
mean v of the squares of each row and divides the row by √v + ε (arXiv:2510.05491, algorithm 1). It then gives the whole
direction AdamW's size, 0.2·√(rows·columns)/‖Ô‖, which is the size of our `muon`. So both share the run's learning rate
and decay. The paper's algorithm orthogonalizes a plain momentum. Its published code has Nesterov's and ε = 1e-10, as we
do: the rows are then all that differs from `muon`. The state is Muon's and one number a row. Neither the norm nor v is
read by the host. The proof counts products and numbers, and reads the momentum, β₂ and decay from the parameter groups.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, PositiveFloat

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected, lossy
from assay.reference.matrix_rules import NorMuonRule
from assay.reference.rules import plain_adamw

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program

_UPDATE_ERROR = 0.12
"""Largest relative error of an update: the order of products changes how the iteration is rounded to bfloat16."""


class Normuon(Optimization):
    """NorMuon and AdamW in place of AdamW."""

    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95
    """Nesterov momentum of the hidden matrices."""
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95
    """β₂, decay of the mean square of a row."""
    epsilon: PositiveFloat = 1e-10
    """Number added to the root of a row's mean square, and to the norm of all rows."""

    title: ClassVar = "NorMuon"
    stage: ClassVar = Stage.OPTIMIZER
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = (
        "steps to a given loss; the second moment of hidden matrices: 4 bytes a parameter there, 8 elsewhere"
    )
    pays: ClassVar = "15 products a matrix in every update, and their temporaries; a number a row of state"
    sources: ClassVar = ("arXiv:2510.05491", "https://github.com/zichongli5/NorMuon", "arXiv:2502.16982")
    claims: ClassVar = frozenset({"optimizer"})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        return {"pieces of weights": "normuon needs whole matrices, and {other} splits them; use data_parallel"}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.n_expert is not None:
            raise Conflict(
                "normuon updates matrices, and a mixture stacks those of its experts; leave out normuon or "
                "model.n_expert"
            )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost import matrix_updates

        return cost.updated_by(matrix_updates.NorMuonUpdate())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizers.recipes import normuon

        return replace(program, optimizer=normuon(run.training, self.momentum, self.beta2, self.epsilon))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        others = plain_adamw(expected.rule)
        rule = NorMuonRule(
            weight_decay=others.weight_decay,
            momentum=self.momentum,
            beta2=self.beta2,
            epsilon=self.epsilon,
            others=others,
        )
        return expected.changed(rule=rule).loosened(joint_updates=lossy(_UPDATE_ERROR))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.optimizer_updates import faults, hidden_matrices, orthogonal_updates

        observed, whole = orthogonal_updates(trace)
        hidden = hidden_matrices(trace)
        rows = sum(one.whole_shape[0] for one in trace.parameters if one.name in hidden)
        width = {one.name: one.whole_bytes // prod(one.whole_shape) for one in trace.parameters}
        kept = sum(
            one.state.get("second_momentum_buffer", 0) // width[one.name]
            for one in trace.optimizer.updates
            if one.name in hidden
        )
        observed += f"; {kept} mean squares for {rows} rows"
        betas = (run.training.beta1, run.training.beta2)
        wrong = faults(trace, run.training.weight_decay, momentum=self.momentum, beta2=self.beta2, betas=betas)
        return self.evidence(observed + wrong, whole and kept == rows and not wrong)
