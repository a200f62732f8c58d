"""Leave a step's loss and norms on the device, and read those of many steps at once.

To read a number, the host waits until the device has computed it, and launches nothing meanwhile. A GPU therefore idles
at every step's end while the host prepares the next step. Here the figures of `every` steps stay on the device and are
read together. An evaluation, a checkpoint or the end reads them earlier, so records are complete and unchanged.
Clipping multiplies by a factor that the host does not know; it is 1 where the norm is not too large. A plain step on a
GPU does the same for ten steps. There a larger `every` is a change, or any after `training.read_every=1`.

The price is late knowledge. A step that is not finite is noticed up to `every` − 1 steps later, when the weights are
already spoiled. The run ends and names the step, but the tensor that it names is the first one spoiled, not the cause.
A budget in seconds is checked only when figures are read. A CPU executes each operator before the host goes on, so it
gains nothing. The proof covers one step, in which the host waits for nothing, and the number of steps whose figures are
read together. The technique has not been timed on a GPU yet.
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


class DeferredMetrics(Optimization):
    """Steps in which the host does not wait for the device."""

    every: Annotated[int, Field(ge=2)] = 10
    """Steps whose figures are read together."""

    title: ClassVar = "deferred reading of loss and norms"
    stage: ClassVar = Stage.STEP
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.EXACT
    saves: ClassVar = "time in which a GPU idles between steps; nothing on a CPU"
    pays: ClassVar = (
        "divergence is noticed up to `every` − 1 steps late; one more pass over all gradients if they are clipped"
    )
    sources: ClassVar = ("pytorch/tutorials: tuning_guide (avoid unnecessary CPU-GPU synchronization)",)

    def lay_out(self, layout: "Layout") -> "Layout":
        return layout

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        why = "{other} makes the host read values before the step ends; leave out deferred_metrics"
        return {"host reads": why}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        plain = run.read_every(machine.device(run.device))
        if self.every <= plain:
            raise Conflict(
                f"a plain step's figures are read every {plain} steps here already; "
                f"give deferred_metrics:every={10 * plain}, set training.read_every=1, or leave out deferred_metrics"
            )
        if run.model.n_expert is not None:
            raise Conflict("the host may read how many tokens each expert of a mixture has; leave out deferred_metrics")

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        return cost.reading_every(min(self.every, run.training.steps))

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        return replace(program, figures=replace(program.figures, read_every=self.every))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        waits = {phase: count for phase, count in trace.synchronizations.items() if count}
        where = "".join(f", {count} times in {phase}" for phase, count in waits.items())
        operators = sum(operation.count for operation in trace.operations)
        observed = f"the host waited for the device {sum(waits.values())} times in {operators} operators{where}"
        if trace.read_every != self.every:
            observed += f"; figures are read every {trace.read_every} steps instead of every {self.every}"
        return self.evidence(observed, operators > 0 and not waits and trace.read_every == self.every)
