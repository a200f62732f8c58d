"""Sequences are divided among ranks by position, in every layer; keys and values travel round the ring for attention.

Activations fall with the degree, also those that no other technique divides, so a context may be longer than one GPU
can hold. Attention over what has travelled is merged by its log-sum-exp (ring attention, arXiv:2310.01889). Weights are
whole on every rank, and their gradients are summed. Of this, the ring itself has not run in this project's tests: it
wants two GPUs. All else has, with attention over gathered keys and values in its place.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import Run
from assay.optimizations.base import Conflict, Numerics, Optimization, Stage, Unavailable, Unpredicted
from assay.step import Evidence, Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


class ContextParallel(Optimization):
    """Each rank works on its positions of every sequence."""

    degree: Annotated[int, Field(ge=2)] = 2
    """Ranks among which the positions of a sequence are divided."""

    title: ClassVar = "context parallelism (ring attention)"
    stage: ClassVar = Stage.SEQUENCE
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "all activations, and the time of all layers: 1/degree on each rank"
    pays: ClassVar = "keys and values of every layer to all ranks, again in backward; one all-reduce of all gradients"
    sources: ClassVar = ("arXiv:2310.01889", "arXiv:2405.07719")
    claims: ClassVar = frozenset({"gradients", "activations between matrices"})
    needs: ClassVar = frozenset({"attention core"})

    def axes(self) -> Mapping[str, int | None]:
        return {"cp": self.degree}

    def check(self, run: Run, machine: "Machine") -> None:
        if machine.device(run.device) == "cpu":
            raise Unavailable(
                "context_parallel needs CUDA devices: torch's ring attention has no causal kernel for a CPU"
            )
        if run.model.context_length % (2 * self.degree):
            raise Conflict(
                f"context_parallel:degree={self.degree} deals out {2 * self.degree} pieces of a sequence, which do not "
                f"divide model.context_length={run.model.context_length}"
            )
        if run.model.dropout > 0:
            raise Conflict("torch's ring attention does not repeat dropout's noise in backward; set model.dropout=0")
        if run.model.n_expert is not None:
            raise Conflict("context_parallel divides dense models only: a mixture balances all tokens of a sequence")

    def predict(self, cost: "Cost", run: Run, machine: "Machine") -> "Cost":
        raise Unpredicted(self.name())

    def apply(self, program: "Program", run: Run) -> "Program":
        from assay.parallel.context import divide_positions, ring_attention

        mesh = program.axis("cp")
        return ring_attention(divide_positions(program, mesh, run.model.context_length), mesh)

    def verify(self, trace: Trace, run: Run) -> Evidence:
        travelled = trace.communicated("all_gather", "all_to_all", axis="cp", phase="forward")
        fused = trace.count("_scaled_dot_product", phase="forward")
        wanted = len(trace.blocks) * trace.forwards * self.degree
        observed = (
            f"{fused} of {wanted} pieces of attention in a fused kernel; {travelled} bytes of keys and values over cp"
        )
        return self.evidence(observed, travelled > 0 and fused == wanted)
