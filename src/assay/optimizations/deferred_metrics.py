"""Leave a step's loss and norms on the device, and read those of many steps at once.

Reading a number waits until the device has computed it, and until then nothing more is queued: a GPU idles at every
step's end while the host prepares the next. Here the figures of `every` steps stay where they are, and are read
together; before an evaluation, a checkpoint or the end at the latest, so that records are complete and say the same.
Clipping multiplies by a factor that the host does not know, and by 1 where nothing is too large.

The price is knowing late. A step that is not finite is noticed up to `every` − 1 steps later, and by then has spoiled
the weights: the run ends and names the step, but the tensor that is named is the first one spoiled, not the cause. A
budget in seconds is looked at when figures are read. On a CPU, which computes what it is told before it goes on, there
is nothing to wait for and nothing to win. The proof is of one step, in which the host waits for nothing, and of the
number of steps whose figures the program reads together. Has not run on a GPU yet.
"""

from collections.abc import Mapping
from dataclasses import replace
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

_FIGURES = 4
"""Loss, gradient norm, and the norms of two blocks."""


class DeferredMetrics(Optimization):
    """No waiting for the device in a steady step."""

    every: Annotated[int, Field(ge=2)] = 10
    """Steps whose figures are read together."""

    title: ClassVar = "figures of steps read later, together"
    stage: ClassVar = Stage.STEP
    numerics: ClassVar = Numerics.EXACT
    saves: ClassVar = "on a GPU the time in which it has nothing to do between steps; nothing on a CPU"
    pays: ClassVar = (
        "divergence is noticed up to `every` − 1 steps late; one pass over all gradients more where they clip"
    )
    sources: ClassVar = ("pytorch/tutorials: tuning_guide (avoid unnecessary CPU-GPU synchronization)",)

    def lay_out(self, layout: "Layout") -> "Layout":
        return layout

    def excludes(self, run: Run) -> Mapping[str, str]:
        why = "{other} reads numbers of a step on the host before the step is over; leave out deferred_metrics"
        return {"host reads": why}

    def check(self, run: Run, machine: "Machine") -> None:
        if run.model.n_expert is not None:
            raise Conflict(
                "a mixture's products may read on the host how many tokens each expert has; leave out deferred_metrics"
            )

    def predict(self, cost: "Cost", run: Run, machine: "Machine") -> "Cost":
        from assay.cost.tensors import Tensor

        together = min(self.every, run.training.steps)
        unread = Tensor("unread figures", (together - 1, _FIGURES), batched=False)
        return replace(cost, buffers=(*cost.buffers, unread))

    def apply(self, program: "Program", run: Run) -> "Program":
        return replace(program, read_every=self.every)

    def verify(self, trace: Trace, run: Run) -> Evidence:
        waits = {phase: count for phase, count in trace.synchronizations.items() if count}
        where = "".join(f", {count} of them in {phase}" for phase, count in waits.items())
        operators = sum(operation.count for operation in trace.operations)
        observed = f"the host waited for the device {sum(waits.values())} times in {operators} operators{where}"
        if trace.read_every != self.every:
            observed += f"; figures are read after {trace.read_every} steps"
        return self.evidence(observed, operators > 0 and not waits and trace.read_every == self.every)
