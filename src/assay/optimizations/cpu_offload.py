"""Keep the optimizer's state in the host's memory, and update the weights there.

Adam's two moments are twice the weights, and are touched once a step. On the host they cost the device nothing; every
step then sends weights and gradients down and the updated weights up, and waits while the processor updates
(ZeRO-Offload, arXiv:2101.06840, for one device, without its delayed update). The more tokens a step has, the less that
weighs. It is the loop of the optimizer in the run, whichever that is, on a processor. Over ranks,
`fully_sharded:offload=true` does the same with weights too. Has not run on a GPU yet.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import Run
from assay.optimizations.base import Conflict, Numerics, Optimization, Stage, Unavailable
from assay.step import Evidence, Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


class CpuOffload(Optimization):
    """Optimizer state and update on the host."""

    title: ClassVar = "optimizer on the host"
    stage: ClassVar = Stage.STEP
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "all of the optimizer's state on the device"
    pays: ClassVar = "12 bytes a float32 weight over the link in every step, and an update at the processor's speed"
    sources: ClassVar = ("arXiv:2101.06840",)
    claims: ClassVar = frozenset({"update"})

    def check(self, run: Run, machine: "Machine") -> None:
        if machine.device(run.device) == "cpu":
            raise Unavailable(
                "cpu_offload moves nothing on a CPU, whose optimizer state lies in the host's memory already; it needs "
                "a CUDA device"
            )
        if run.ranks > 1:
            raise Conflict("cpu_offload is for one device; over ranks take fully_sharded:offload=true")

    def predict(self, cost: "Cost", run: Run, machine: "Machine") -> "Cost":
        from assay.cost.on_host import OnHost

        return replace(cost, rule=OnHost())

    def apply(self, program: "Program", run: Run) -> "Program":
        from assay.step.on_host import update_on_host

        return update_on_host(program)

    def verify(self, trace: Trace, run: Run) -> Evidence:
        away, state = trace.offloaded_state_bytes, trace.optimizer_state_bytes
        observed = f"{away} of {state} bytes of optimizer state in the host's memory, away from the device"
        return self.evidence(observed, 0 < away == state)
