"""With tensor parallelism: norms, dropout and the residual stream are divided by position among the same ranks.

Tensor parallelism divides matrices, and every rank keeps all activations between them for backward. Divided along the
sequence, these fall with the degree too, at the same traffic. The all-reduce after each pair of matrices becomes a
reduce-scatter, and an all-gather precedes the next pair (arXiv:2205.05198, section 4.2.2). The paper gathers the input
of a pair again in backward; torch's styles save the gathered input, so that tensor stays whole.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class SequenceParallel(Optimization):
    """Between matrices each rank of tensor parallelism holds its part of the positions."""

    degree: Annotated[int, Field(ge=2)] = 2
    """Parts of the sequence: the number of ranks that share every matrix."""

    title: ClassVar = "sequence parallelism"
    stage: ClassVar = Stage.SEQUENCE
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "saved tensors of norms, dropout and the residual stream: 1/degree of them on each rank"
    pays: ClassVar = (
        "a reduce-scatter and an all-gather in place of each all-reduce of tensor parallelism: the same bytes"
    )
    sources: ClassVar = ("arXiv:2205.05198",)
    claims: ClassVar = frozenset({"activations between matrices"})
    needs: ClassVar = frozenset({"matrices"})

    def axes(self) -> Mapping[str, int | None]:
        return {"tp": self.degree}

    def lay_out(self, layout: "Layout") -> "Layout":
        return replace(layout, sequence_parallel=True)

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.context_length % self.degree:
            raise Conflict(
                f"sequence_parallel:degree={self.degree} does not divide model.context_length="
                f"{run.model.context_length}; choose a divisor of it"
            )
        if run.model.n_expert is not None:
            raise Conflict(
                "sequence_parallel divides dense models only, because a mixture of experts routes all tokens of a "
                "sequence; leave out sequence_parallel"
            )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        return replace(cost, sequence_parts=self.degree)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        return replace(program, parallel=replace(program.parallel, sequence_parts=self.degree))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        scattered = trace.communicated("reduce_scatter", axis="tp", phase="forward")
        summed = trace.communicated("all_reduce", axis="tp", phase="forward")
        observed = f"{scattered} bytes reduce-scattered over tp in forward, {summed} bytes all-reduced"
        names = [one.name for one in trace.parameters]
        first, last = (any(name.startswith(part) for name in names) for part in ("embedding.", "head."))
        last = last or trace.ranks.get("pp", 1) == 1  # a head may have no weight but one that the embedding owns
        pairs = 2 * len(trace.blocks)
        wanted = ((pairs + first) * trace.forwards, (pairs + last) * trace.forwards)
        calls = (trace.calls("reduce_scatter", "tp", "forward"), trace.calls("all_gather", "tp", "forward"))
        if calls != wanted:
            observed += f"; {calls[0]} of {wanted[0]} reduce-scatters and {calls[1]} of {wanted[1]} all-gathers"
        # A few numbers a position, for the loss, and gradients of norms are still summed whole.
        return self.evidence(observed, calls == wanted != (0, 0) and summed < scattered / 2)
