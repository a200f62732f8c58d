"""The blocks are divided among ranks, one after the other, and micro-batches follow each other through them.

Each rank holds its blocks' weights, gradients and optimizer state only, and sends one activation a micro-batch to its
neighbour: the technique for slow links. It pays with idle time while the pipeline fills and drains, the bubble
(p−1)/(m+p−1) of m micro-batches over p stages (GPipe, arXiv:1811.06965). 1F1B has the same bubble and keeps at most p
micro-batches alive (arXiv:1806.03377); several stages a rank shrink it (arXiv:2104.04473); splitting backward in two
can close it (arXiv:2401.10241).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from assay.config import Run
from assay.optimizations.base import Conflict, Numerics, Optimization, Stage
from assay.step import Evidence, Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.layout import Layout, ScheduleName
    from assay.cost.schedules import Schedule
    from assay.cost.stages import Split
    from assay.hardware import Machine
    from assay.step.program import Program

_PLANNED: "Mapping[str, tuple[ScheduleName, int]]" = {
    "gpipe": ("gpipe", 1),
    "1f1b": ("one_f_one_b", 1),
    "interleaved": ("interleaved", 2),
    "zero-bubble": ("zero_bubble_v", 2),
}
"""A schedule's name in a plan, and the stages that a rank has."""


class PipelineParallel(Optimization):
    """Blocks in stages, a rank each."""

    degree: Annotated[int, Field(ge=2)] = 2
    """Ranks in the line."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble"] = "1f1b"
    """In which order a rank does forwards and backwards; the last two put two stages on each rank."""
    micro_batches: Annotated[int, Field(ge=1)] = 4
    """Equal parts of the batch."""

    title: ClassVar = "pipeline parallelism"
    stage: ClassVar = Stage.PIPELINE
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "weights, gradients and state of the blocks: 1/degree of them on each rank"
    pays: ClassVar = "idle time while the pipeline fills and drains, and smaller kernels"
    sources: ClassVar = ("arXiv:1811.06965", "arXiv:1806.03377", "arXiv:2104.04473", "arXiv:2401.10241")
    claims: ClassVar = frozenset({"micro_batches", "gradients"})

    @property
    def split(self) -> "Split":
        """Which rank has which stages."""
        from assay.cost.stages import Split

        return Split(self.degree, 1 if self.schedule in ("gpipe", "1f1b") else 2, vee=self.schedule == "zero-bubble")

    def axes(self) -> Mapping[str, int | None]:
        return {"pp": self.degree}

    def lay_out(self, layout: "Layout") -> "Layout":
        schedule, chunks = _PLANNED[self.schedule]
        return replace(layout, schedule=schedule, chunks=chunks).cut(self.micro_batches)

    def cuts(self) -> int:
        return self.micro_batches

    def check(self, run: Run, machine: "Machine") -> None:
        layers = run.model.n_layer
        if layers % self.split.count:
            raise Conflict(f"{self.split.count} stages of pipeline_parallel do not divide the model's {layers} blocks")
        if self.schedule == "interleaved" and self.micro_batches % self.degree:
            raise Conflict(
                f"the interleaved schedule sends micro-batches in groups of {self.degree}, which do not divide "
                f"pipeline_parallel:micro_batches={self.micro_batches}"
            )

    def predict(self, cost: "Cost", run: Run, machine: "Machine") -> "Cost":
        from assay.cost import schedules
        from assay.cost.stages import staged

        make: dict[str, Callable[[int, int], Schedule]] = {
            "gpipe": schedules.gpipe,
            "1f1b": schedules.one_f_one_b,
            "interleaved": partial(schedules.interleaved, chunks=self.split.per_rank),
            "zero-bubble": schedules.zero_bubble_by_hand,
        }
        return staged(cost, self.split, self.micro_batches, make[self.schedule](self.degree, self.micro_batches))

    def apply(self, program: "Program", run: Run) -> "Program":
        from assay.parallel.pipeline import pipelined

        return pipelined(program, program.axis("pp"), self.split, self.schedule, self.micro_batches)

    def verify(self, trace: Trace, run: Run) -> Evidence:
        held, wanted = len(trace.blocks), run.model.n_layer // self.degree
        observed = f"{held} of {run.model.n_layer} blocks held by this rank, {trace.forwards} micro-batches"
        return self.evidence(observed, held == wanted and trace.forwards == self.micro_batches)
