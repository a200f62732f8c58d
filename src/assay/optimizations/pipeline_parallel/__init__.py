"""Consecutive blocks form stages on different ranks, and micro-batches pass through the stages one after another.

Each rank holds only its blocks' weights, gradients and optimizer state, and sends one activation a micro-batch to its
neighbour: the technique for slow links. The price is idle time while the pipeline fills and drains, the bubble
(p−1)/(m+p−1) of m micro-batches over p stages (GPipe, arXiv:1811.06965). 1F1B has the same bubble and keeps at most p
micro-batches alive (arXiv:1806.03377). Several stages a rank shrink the bubble (arXiv:2104.04473). Splitting backward
in two can close it (arXiv:2401.10241). These figures hold for equal stages, but the last stage also has the logits:
`split=5-3` gives it fewer of eight blocks. All other stages wait for the longest one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unplanned
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout, ScheduleName
    from assay.cost.pipeline_schedules import Schedule
    from assay.cost.pipeline_stages import Split
    from assay.hardware import Machine
    from assay.step.program import Program

_PLANNED: "Mapping[str, tuple[ScheduleName, int]]" = {
    "gpipe": ("gpipe", 1),
    "1f1b": ("one_f_one_b", 1),
    "interleaved": ("interleaved", 2),
    "zero-bubble": ("zero_bubble_v", 2),
}
"""Name of each schedule in a plan, and stages per rank."""

_FILLED = 4
"""Micro-batches for each rank from which GPipe's authors found the idle time negligible."""


class PipelineParallel(Optimization):
    """Consecutive blocks as stages, divided among ranks."""

    degree: Annotated[int, Field(ge=2)] = 2
    """Ranks of the pipeline."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble"] = "1f1b"
    """Order of forwards and backwards on a rank; the last two put two stages on each rank."""
    micro_batches: Annotated[int, Field(ge=1)] = 4
    """Equal parts of the batch."""
    split: str | None = None
    """Number of blocks of each stage, such as 3-1; by default equal numbers."""

    title: ClassVar = "pipeline parallelism"
    stage: ClassVar = Stage.PIPELINE
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "weights, gradients and state of the blocks: 1/degree of them on each rank"
    pays: ClassVar = "idle time while the pipeline fills and drains, and smaller kernels"
    sources: ClassVar = ("arXiv:1811.06965", "arXiv:1806.03377", "arXiv:2104.04473", "arXiv:2401.10241")
    claims: ClassVar = frozenset({"micro_batches", "gradients"})
    traits: ClassVar = frozenset({"stages"})

    @field_validator("split")
    @classmethod
    def _counts(cls, split: str | None) -> str | None:
        if split is not None and not re.fullmatch(r"[1-9]\d*(-[1-9]\d*)+", split):
            raise ValueError("should be the number of blocks of each stage, at least 1, joined by dashes, such as 3-1")
        return split

    @property
    def stages(self) -> "Split":
        """Assignment of stages to ranks, and of blocks to stages."""
        from assay.cost.pipeline_stages import Split

        dealt = tuple(map(int, self.split.split("-"))) if self.split else ()
        return Split(self.degree, _PLANNED[self.schedule][1], vee=self.schedule == "zero-bubble", dealt=dealt)

    def axes(self) -> Mapping[str, int | None]:
        return {"pp": self.degree}

    def lay_out(self, layout: "Layout") -> "Layout":
        schedule, chunks = _PLANNED[self.schedule]
        if self.split and chunks > 1:
            raise Unplanned(f"{self.name()}:split with two stages a rank")
        return replace(layout, schedule=schedule, chunks=chunks, dealt=self.stages.dealt).cut(self.micro_batches)

    def cuts(self) -> int:
        return self.micro_batches

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        if self.schedule != "zero-bubble":
            return {}
        pieces = "the zero-bubble schedule splits backward into parts, and {other} would"
        split = "torch's zero-bubble schedule cannot split backward with {other} and norms after branches"
        found = {
            "recomputation": f"{pieces} recompute blocks for each part; use another schedule",
            "gathers for backward": f"{pieces} gather weights for each; set its reshard=false, or use another schedule",
        }
        if run.model.norm_position == "post":
            found["activations between matrices"] = f"{split}; use another schedule, or model.norm_position=pre"
        return found

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        layers, stages = run.model.n_layer, self.stages
        if stages.dealt and (len(stages.dealt), sum(stages.dealt)) != (stages.count, layers):
            raise Conflict(
                f"pipeline_parallel:split={self.split} gives {sum(stages.dealt)} blocks to {len(stages.dealt)} stages, "
                f"and the run has {layers} blocks and {stages.count} stages; "
                f"give {stages.count} numbers that add up to {layers}"
            )
        if not stages.dealt and layers % stages.count:
            raise Conflict(
                f"{stages.count} stages of pipeline_parallel do not divide the model's {layers} blocks; "
                "set split to the number of blocks of each stage"
            )
        if self.schedule == "interleaved" and self.micro_batches % self.degree:
            raise Conflict(
                f"the interleaved schedule sends micro-batches in groups of {self.degree}, which do not divide "
                f"pipeline_parallel:micro_batches={self.micro_batches}; choose a multiple of {self.degree}"
            )

    def known_loss(self, run: ResolvedRun, machine: "Machine") -> str:
        enough = _FILLED * self.degree
        if self.schedule not in ("gpipe", "1f1b") or self.micro_batches >= enough:
            return ""
        idle = (self.degree - 1) / (self.micro_batches + self.degree - 1)
        return f"ranks idle for {idle:.0%} of a step; from micro_batches={enough} on little is lost (arXiv:1811.06965)"

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.pipeline_stages import stage_ledger

        return stage_ledger(cost, self.stages, self.micro_batches, self._order())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizations.pipeline_parallel.step import pipeline_program

        return pipeline_program(program, program.parallel.axis("pp"), self.stages, self.schedule, self.micro_batches)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        layers, stages = run.model.n_layer, self.stages
        of_ranks = [
            tuple(sorted(block for stage in stages.of(rank) for block in stages.blocks_of(stage, layers)))
            for rank in range(self.degree)
        ]
        observed = f"{len(trace.blocks)} of {layers} blocks held by this rank, {trace.forwards} micro-batches"
        rank = trace.place.get("pp", 0)
        due, counted = self._calls_of(rank), trace.forwards == self.micro_batches
        kept = [ran == wanted for ran, wanted in zip(trace.schedule, due, strict=False)]
        ordered = len(trace.schedule) == len(due) and all(kept)
        if not ordered:
            first = kept.index(False) if False in kept else min(len(trace.schedule), len(due))
            ran, wanted = (order[first] if first < len(order) else "nothing" for order in (trace.schedule, due))
            observed += f"; call {first} of {self.schedule} should be {wanted}, and was {ran}"
        held = rank < len(of_ranks) and trace.blocks == of_ranks[rank]
        return self.evidence(observed, held and counted and ordered)

    def _order(self) -> "Schedule":
        from assay.cost import pipeline_schedules

        make: dict[str, Callable[[int, int], Schedule]] = {
            "gpipe": pipeline_schedules.gpipe,
            "1f1b": pipeline_schedules.one_f_one_b,
            "interleaved": partial(pipeline_schedules.interleaved_1f1b, chunks=self.stages.per_rank),
            "zero-bubble": pipeline_schedules.zero_bubble_by_hand,
        }
        return make[self.schedule](self.degree, self.micro_batches)

    def _calls_of(self, rank: int) -> list[str]:
        """Calls of a rank's stages in the order of the schedule, in a trace's notation."""
        stages = self.stages.of(rank)
        return [f"{one.kind}{stages[one.chunk]}.{one.micro_batch}" for one in self._order().orders[rank]]
