"""Muon orthogonalizes the updates of hidden matrices, so that no direction dominates; AdamW updates everything else.

The momentum of a matrix is replaced by the nearest orthogonal matrix. Five steps of a Newton–Schulz iteration in
bfloat16 find it (Jordan et al. 2024; at scale arXiv:2502.16982). Its size is matched to AdamW's, 0.2·√max(rows,
columns), so the run's learning rate and decay serve both. The state is 4 bytes a parameter of hidden matrices in
float32, and 8 of the rest. Embeddings, output weights, biases and gains are no maps between hidden states, and stay
AdamW's. The iteration has 15 products a matrix: 10m²(2n + m) FLOPs for m × n with m ≤ n, whatever the batch. Techniques
that divide a matrix among ranks are refused. The proof counts the products, and reads momentum and decay from the
parameter groups.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected, lossy
from assay.reference.matrix_rules import MuonRule
from assay.reference.rules import plain_adamw

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program

_UPDATE_ERROR = 0.12
"""Largest relative error of an update: the order of products changes how the iteration is rounded to bfloat16."""


class MuonAndAdamw(Optimization):
    """Muon and AdamW in place of AdamW."""

    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95
    """Nesterov momentum of the hidden matrices."""

    title: ClassVar = "Muon"
    stage: ClassVar = Stage.OPTIMIZER
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = (
        "steps to a given loss; the second moment of hidden matrices: 4 bytes a parameter there, 8 elsewhere"
    )
    pays: ClassVar = "15 products a matrix in every update, and their temporaries"
    sources: ClassVar = ("https://kellerjordan.github.io/posts/muon/", "arXiv:2502.16982")
    claims: ClassVar = frozenset({"optimizer"})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        return {"pieces of weights": "muon needs whole matrices, and {other} splits them; use data_parallel"}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.n_expert is not None:
            raise Conflict(
                "muon updates matrices, and a mixture stacks those of its experts; leave out muon or model.n_expert"
            )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost import matrix_updates

        return cost.updated_by(matrix_updates.MuonUpdate())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizers.recipes import muon

        return replace(program, optimizer=muon(run.training, self.momentum))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        others = plain_adamw(expected.rule)
        rule = MuonRule(weight_decay=others.weight_decay, momentum=self.momentum, others=others)
        return expected.changed(rule=rule).loosened(joint_updates=lossy(_UPDATE_ERROR))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.optimizer_updates import faults, orthogonal_updates

        observed, whole = orthogonal_updates(trace)
        betas = (run.training.beta1, run.training.beta2)
        wrong = faults(trace, run.training.weight_decay, momentum=self.momentum, betas=betas)
        return self.evidence(observed + wrong, whole and not wrong)
