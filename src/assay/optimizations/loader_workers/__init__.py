"""Let other processes prepare the batches, so that a step finds its own ready.

The technique is torch's `DataLoader` with the step as its index. Each worker prepares whole batches, a few ahead, in
parallel to the computation. Batches stay equal to the bit, also after a resume.

It helps when preparing a batch takes long: when a record's `data wait` is a noticeable share of the step. Here batches
are cut out of memory-mapped tokens, which takes microseconds and seldom waits for a disk. Then it saves nothing, and
costs a pipe's copy of each batch and processes that need cores. The first step forks the workers, which share the run's
memory pages. As the run overwrites its weights, one copy of the initial values stays for all workers. The recorded
memory is that of the run's own process, without the workers.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.optimizations.optimization import Numerics, Optimization, Stage, Unavailable
from assay.records.evidence import Evidence
from assay.records.trace import ANOTHER_PROCESS, Trace
from assay.units import format_seconds

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program

_AHEAD = 2
"""Batches that each worker prepares beyond the current one: the default of torch's loader."""


class LoaderWorkers(Optimization):
    """Batches prepared ahead by other processes."""

    workers: Annotated[int, Field(ge=1, le=64)] = 2
    """Processes of each rank that prepare batches."""

    title: ClassVar = "loader workers"
    stage: ClassVar = Stage.DATA
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.EXACT
    saves: ClassVar = (
        "time in which a step waits for its batch; nothing if it does not wait, as with memory-mapped tokens"
    )
    pays: ClassVar = "processes that use cores and memory; one copy of each batch through a pipe"
    sources: ClassVar = ("https://docs.pytorch.org/docs/stable/data.html",)
    claims: ClassVar = frozenset({"reading of batches"})

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        import multiprocessing

        if "fork" not in multiprocessing.get_all_start_methods():
            raise Unavailable("loader_workers forks processes, which this system does not support; use Linux")

    def lay_out(self, layout: "Layout") -> "Layout":
        return layout

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        return replace(cost, batch=replace(cost.batch, waiting=_AHEAD * self.workers))

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizations.loader_workers.step import Workers

        batches = Workers(program, self.workers, _AHEAD)
        return replace(program, batches=batches, witnesses=(*program.witnesses, batches.prepared))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        made, processes = (of.get(ANOTHER_PROCESS, 0) for of in (trace.batch.prepared, trace.batch.makers))
        observed = f"{made} of {trace.batch.sequences} sequences prepared by another process; "
        observed += f"the step waited {format_seconds(trace.batch.data_seconds)} for them"
        if processes != self.workers:
            observed += f"; {processes} processes prepare batches instead of {self.workers}"
        return self.evidence(observed, 0 < made == trace.batch.sequences and processes == self.workers)
