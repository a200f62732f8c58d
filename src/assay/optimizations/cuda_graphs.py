"""Capture a micro-batch's forward and backward as one graph, which the GPU replays without the host.

A small model's kernels end before the host has launched the next ones, and the GPU idles between them. A CUDA graph is
one launch, however many kernels it has, and computes the very same numbers. Two graphs are captured. One is for the
first micro-batch of a step, which writes the gradients; the other is for all others, which add to them. The first step
of a run trains without a graph, as warm-up. Clipping, update and schedule stay outside, where they may change from step
to step. An optimizer of many small kernels therefore still waits for the host: combine it with `fused_adamw`.

The price is memory. A graph's tensors keep the addresses of the capture. The peak of forward and backward is therefore
held between steps. The update's temporaries are allocated on top of it, where they would have reused memory that
backward freed. Torch counts such memory as reserved and not as allocated; the peak here, predicted and measured, counts
it as held. Code that reads a number on the host, or changes between steps, cannot be captured, and is refused.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.cost.operation import Tensor
from assay.cost.step_cost import Cost
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unavailable
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected

if TYPE_CHECKING:
    from assay.hardware import Machine
    from assay.step.program import Program


def replay_ledger(cost: Cost) -> Cost:
    """The ledger of a step that a captured graph replays.

    The graph reads a micro-batch from a fixed buffer, into which each one is copied from the batch. Its peak stays
    allocated between steps, gradients included, so nothing of it is freed for the update (`cost.simulation`).
    """
    inputs = {one.name: _place(one, cost.micro_batches) for one in cost.batch.tensors}
    names = {name: one.name for name, one in inputs.items()}
    tape = tuple(operation.reading(names) for operation in cost.tape)
    return replace(cost, tape=tape, tables=(*cost.tables, *inputs.values()), replayed=True)


def _place(one: Tensor, micro_batches: int) -> Tensor:
    return replace(one, name=f"replayed {one.name}", shape=(one.shape[0] // micro_batches, *one.shape[1:]))


_UNLIKE = {
    "copies of what is kept": "copies on a stream of its own, into pinned memory that it allocates during the step",
    "compiler": "generates and tunes kernels in calls that are not proven inside a capture",
    "update in backward": "updates weights in backward with a learning rate that changes between steps",
    "loss scale": "scales the loss by a factor that changes between steps",
    "weights of another kind": "computes its scales in kernels that are not proven inside a capture",
}
"""Traits that cannot be captured, and the reasons."""


class CudaGraphs(Optimization):
    """Forward and backward replayed as CUDA graphs."""

    title: ClassVar = "CUDA graphs"
    stage: ClassVar = Stage.STEP
    numerics: ClassVar = Numerics.EXACT
    saves: ClassVar = "time in which a GPU waits for the host to launch the kernels of forward and backward"
    pays: ClassVar = "the peak memory of forward and backward, held between steps and during the update"
    sources: ClassVar = (
        "pytorch.org/docs: cuda.html#cuda-graphs",
        "docs.nvidia.com/cuda: CUDA C++ Programming Guide, CUDA Graphs",
    )
    claims: ClassVar = frozenset({"gradients"})
    traits: ClassVar = frozenset({"recorded graphs"})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        reasons = {trait: f"{{other}} {why}; leave out cuda_graphs" for trait, why in _UNLIKE.items()}
        noise = (
            "{other} reads the random state to repeat dropout's masks, which cannot be captured; set "
            "model.dropout=0, or leave out cuda_graphs"
        )
        return {**reasons, **({"recomputation": noise} if run.model.dropout > 0 else {})}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if machine.device(run.device) != "cuda":
            raise Unavailable(
                "cuda_graphs captures the kernels of a CUDA device, and a CPU has no such kernels; use a CUDA device"
            )
        if run.ranks > 1:
            raise Conflict("cuda_graphs runs on one device only; leave it out of runs over several ranks")
        if run.model.n_expert is not None:
            raise Conflict(
                "the host reads where a mixture's router sends tokens, which cannot be captured; leave out cuda_graphs"
            )

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return super().expect(expected, run).changed(shows_masks=False)

    def predict(self, cost: Cost, run: ResolvedRun, machine: "Machine") -> Cost:
        return replay_ledger(cost)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.step.graphs import StepGraphs

        graphs = StepGraphs(program.gradients)
        return replace(program, gradients=graphs.gradients, witnesses=(*program.witnesses, graphs))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        inside, total = trace.graphs.captured_contractions, trace.contractions()
        replays = trace.graphs.graph_replays
        observed = f"{replays} replays for {trace.forwards} micro-batches; {inside} of {total} matmuls in a graph"
        return self.evidence(observed, 0 < replays == trace.forwards and 0 < inside == total)
