"""Each matrix is split over ranks that work on the same tokens: heads and hidden units are divided, not sequences.

Arithmetic, weights, gradients and optimizer state of the matrices fall with the degree; what every rank holds whole are
the residual stream, the norms and their weights. It sends most often of all techniques, four all-reduces a block, so it
wants the fastest links (arXiv:1909.08053, arXiv:2104.04473).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import Run
from assay.optimizations.base import Conflict, Numerics, Optimization, Stage
from assay.step import Evidence, Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class TensorParallel(Optimization):
    """Column- and row-split attention and MLP, vocabulary-split embedding and loss."""

    degree: Annotated[int, Field(ge=2)] = 2
    """Ranks that share every matrix."""

    title: ClassVar = "tensor parallelism"
    stage: ClassVar = Stage.TENSOR
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "weights, gradients, state and arithmetic of all matrices: 1/degree of each on each rank"
    pays: ClassVar = "two all-reduces of the residual stream a block in forward and two in backward"
    sources: ClassVar = ("arXiv:1909.08053", "arXiv:2104.04473")
    claims: ClassVar = frozenset({"matrices", "experts", "loss"})
    traits: ClassVar = frozenset({"pieces of weights"})

    def axes(self) -> Mapping[str, int | None]:
        return {"tp": self.degree}

    def lay_out(self, layout: "Layout") -> "Layout":
        return layout

    def check(self, run: Run, machine: "Machine") -> None:
        model = run.model
        for what, size in (("key/value heads", model.kv_heads), ("hidden units of the MLP", model.hidden)):
            if size % self.degree:
                raise Conflict(
                    f"tensor_parallel:degree={self.degree} does not divide the model's {size} {what}; take one that "
                    "does"
                )

    def predict(self, cost: "Cost", run: Run, machine: "Machine") -> "Cost":
        from assay.cost.matrices import split_matrices

        return split_matrices(cost)

    def apply(self, program: "Program", run: Run) -> "Program":
        from assay.parallel.tensor import split_matrices

        return split_matrices(program, program.axis("tp"))

    def verify(self, trace: Trace, run: Run) -> Evidence:
        held, whole = trace.parameter_bytes, trace.whole_parameter_bytes
        reduced = trace.communicated("all_reduce", "reduce_scatter", axis="tp", phase="forward")
        observed = f"{held} of {whole} bytes of weights held by this rank; {reduced} bytes summed over tp in forward"
        return self.evidence(observed, held < whole and reduced > 0)
