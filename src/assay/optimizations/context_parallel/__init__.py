"""Sequences are divided among ranks by position, in every layer; attention exchanges keys and values around a ring.

All activations fall with the degree, also those that no other technique divides, so a context may be longer than one
GPU can hold. Partial attention results are merged by their log-sum-exp (ring attention, arXiv:2310.01889). Weights are
whole on every rank, and their gradients are summed. The GPU kernels and torch's dispatch to them have not run in this
project's tests, which would need two GPUs. Everything else has run, including torch's ring over a CPU kernel, whose
bytes equal the predicted ones. In float32 torch's kernel pads its row sums to 32. The ring does not merge padding, so
pieces must then be multiples of 32. Plans for other machines divide ZeRO's shards over these ranks too, as published
trainers do; here they are divided over dp alone.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unavailable
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program

_PADDED = 32
"""Multiple to which the memory-efficient kernel, the only one for float32, pads its row sums."""


class ContextParallel(Optimization):
    """Each rank computes its positions of every sequence."""

    degree: Annotated[int, Field(ge=2)] = 2
    """Ranks among which the positions of a sequence are divided."""

    title: ClassVar = "context parallelism (ring attention)"
    stage: ClassVar = Stage.SEQUENCE
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "all activations, and the time of all layers: 1/degree of each on each rank"
    pays: ClassVar = (
        "keys and values of every layer sent to all ranks, in backward once more; one all-reduce of all gradients"
    )
    sources: ClassVar = ("arXiv:2310.01889", "arXiv:2405.07719")
    claims: ClassVar = frozenset({"gradients", "activations between matrices"})
    needs: ClassVar = frozenset({"attention core"})

    def axes(self) -> Mapping[str, int | None]:
        return {"cp": self.degree}

    def lay_out(self, layout: "Layout") -> "Layout":
        return layout

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        fused = "context_parallel needs a fused attention kernel; use sdpa_attention with a backend other than math"
        padded = self._padded(run)
        return {"attention in backend math": fused, **({"attention in backend efficient": padded} if padded else {})}

    def requires(self, run: ResolvedRun, machine: "Machine") -> Mapping[str, str]:
        padded = self._padded(run) if machine.device(run.device) == "cuda" else ""
        return {"16-bit products": padded} if padded else {}

    def _padded(self, run: ResolvedRun) -> str:
        """Reason against the kernel that pads; empty if its pieces need no padding, or `check` refuses them anyway."""
        pieces = 2 * self.degree * _PADDED
        if run.model.context_length % pieces == 0 or run.model.context_length % (2 * self.degree):
            return ""
        return (
            f"in float32, or with backend=efficient, context_parallel needs chunks of a multiple of {_PADDED}; "
            f"make model.context_length a multiple of {pieces}, or add bf16_mixed with backend=flash"
        )

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if machine.device(run.device) == "cpu":
            raise Unavailable(
                "context_parallel needs CUDA devices: torch's ring attention has no causal kernel for a CPU"
            )
        if run.model.context_length % (2 * self.degree):
            raise Conflict(
                f"context_parallel:degree={self.degree} cuts a sequence into {2 * self.degree} chunks; make "
                f"model.context_length={run.model.context_length} a multiple of {2 * self.degree}"
            )
        if run.model.dropout > 0:
            raise Conflict("torch's ring attention does not repeat dropout's masks in backward; set model.dropout=0")
        if run.model.n_expert is not None:
            raise Conflict(
                "context_parallel divides dense models only, because a mixture of experts balances all tokens of a "
                "sequence; leave out context_parallel"
            )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.optimizations.context_parallel.ledger import divide_context

        return divide_context(cost)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizations.context_parallel.step import divide_positions, ring_attention

        mesh = program.parallel.axis("cp")
        return ring_attention(divide_positions(program, mesh, run.model.context_length), mesh)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        travelled = trace.communicated("all_gather", "all_to_all", axis="cp", phase="forward")
        fused = trace.count("_scaled_dot_product", phase="forward")
        wanted = len(trace.blocks) * trace.forwards * self.degree
        observed = (
            f"{fused} of {wanted} attention chunks in a fused kernel; "
            f"{travelled} bytes of keys and values communicated over cp"
        )
        return self.evidence(observed, travelled > 0 and fused == wanted)
