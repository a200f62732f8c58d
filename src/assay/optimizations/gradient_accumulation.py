"""Compute the batch in equal parts, one after the other, and update once.

The tokens of an optimizer step stay the same: `batch_size` sequences are cut into `micro_batches`. Each part's loss is
divided by the tokens of the whole batch, and gradients add up. Activations shrink with the part. Gradients now stay
alive from the first backward on, since each backward adds to those of earlier parts.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.config.run import Scalar
from assay.optimizations.optimization import Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class GradientAccumulation(Optimization):
    """One optimizer step over several micro-batches."""

    micro_batches: Annotated[int, Field(ge=2)] = 4
    """Equal parts of the batch."""

    title: ClassVar = "gradient accumulation"
    stage: ClassVar = Stage.BATCH
    usual: ClassVar = "the same batch in less memory, in several parts"
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "activations: those of one micro-batch at a time"
    pays: ClassVar = "smaller, less efficient kernels; gradients stay allocated in every forward but the first"
    sources: ClassVar = ("arXiv:1806.00187", "huggingface/transformers#35203")
    claims: ClassVar = frozenset({"micro_batches"})

    @classmethod
    def choices(cls, run: ResolvedRun) -> tuple[dict[str, Scalar], ...]:
        """Powers of two that divide a step's sequences."""
        rows = run.sequences_per_step
        return tuple({"micro_batches": 2**one} for one in range(1, rows.bit_length()) if rows % 2**one == 0)

    def lay_out(self, layout: "Layout") -> "Layout":
        return layout.cut(self.micro_batches)

    def cuts(self) -> int:
        return self.micro_batches

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        return cost.cut(self.micro_batches)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        return replace(program, micro_batches=program.micro_batches * self.micro_batches)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        tokens = trace.batch.targets
        observed = f"{trace.forwards} forward passes over {tokens} {run.counted} before one update"
        return self.evidence(observed, trace.forwards == self.micro_batches and tokens == run.tokens_per_step)
