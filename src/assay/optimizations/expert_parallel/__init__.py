"""Experts are divided among the ranks that share the batch; tokens are sent to their experts and back.

Each rank owns n_expert/degree whole experts of every layer: their weights, gradients and optimizer state fall with the
degree. Their gradients need no sum over ranks, since an expert receives all of its tokens on one rank. The rows of all
chosen experts cross the links twice in forward and twice in backward (GShard, arXiv:2006.16668). The fullest rank sets
the pace, so speed depends on the router's balance. Everything else is replicated or sharded by the technique that
divides the batch.

The prediction is exact for the rows that a rank sends. It assumes that a rank receives as many, which holds if its
experts are chosen as often as the mean. A fuller rank exchanges and holds more than predicted, by its surplus of rows.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


class ExpertParallel(Optimization):
    """Whole experts on each rank, with an exchange of tokens before and after them."""

    degree: Annotated[int, Field(ge=2)] = 2
    """Ranks among which the experts are divided: all that share the batch."""

    title: ClassVar = "expert parallelism"
    stage: ClassVar = Stage.EXPERT
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "weights, gradients and state of the experts: 1/degree of them on each rank, never gathered"
    pays: ClassVar = "two all-to-alls of the chosen experts' rows in forward of each layer, and two in backward"
    sources: ClassVar = ("arXiv:2006.16668", "arXiv:2101.03961")
    claims: ClassVar = frozenset({"experts"})
    needs: ClassVar = frozenset({"replicas"})
    traits: ClassVar = frozenset({"exchanged experts"})

    def axes(self) -> Mapping[str, int | None]:
        return {"dp": self.degree}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        model = run.model
        if model.n_expert is None:
            raise Conflict("expert_parallel divides experts, and the model has none; set model.n_expert")
        if model.n_expert % self.degree:
            raise Conflict(
                f"expert_parallel:degree={self.degree} does not divide the model's {model.n_expert} experts; "
                f"choose a divisor of {model.n_expert}"
            )
        if model.expert_capacity is not None:
            raise Conflict(
                "each rank of expert_parallel would count model.expert_capacity over its own tokens only, and so drop "
                "other tokens than one device; leave out model.expert_capacity"
            )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.rewrites.experts import divide_experts

        return divide_experts(cost)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizations.expert_parallel.step import divide_experts

        return divide_experts(program, program.parallel.axis("dp"))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.sharding import divided_as

        held, whole = trace.held(".experts.")
        experts = [one for one in trace.parameters if ".experts." in one.name]
        right, layers = divided_as(trace, experts, "dp", lambda one: 0), len(trace.blocks) * trace.forwards
        sent = trace.communicated("all_to_all", axis="dp")
        observed = f"{held} of {whole} bytes of experts held by this rank; {sent} bytes exchanged over dp"
        # Each layer exchanges row counts, rows and results; backward exchanges the gradients of rows and results.
        forward, backward = (trace.calls("all_to_all", "dp", phase) for phase in ("forward", "backward"))
        exchanged = (forward, backward) == (3 * layers, 2 * layers)
        if not exchanged:
            observed += f", in {forward} exchanges in forward and {backward} in backward of {layers} layers"
        return self.evidence(observed, exchanged and 0 < right == len(experts) and held * self.degree == whole)
