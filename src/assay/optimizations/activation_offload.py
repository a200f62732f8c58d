"""Keep saved tensors in the host's memory until backward needs them.

A stream of its own copies activations to pinned memory as they are saved. They are copied back when their backward node
runs (arXiv:1602.08124; torch's `save_on_cpu`). Weights stay on the device. Recomputation costs FLOPs; offload costs
link traffic. Every saved byte crosses the link twice a step, and a tensor that two operations save crosses it for each.
Copies to the host overlap the forward; for copies back the device waits.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.cost.operation import Operation
from assay.cost.step_cost import Cost
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unavailable
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.hardware import Machine
    from assay.step.program import Program


def saved_on_host(cost: Cost) -> Cost:
    """The ledger whose operations save only weights on the device.

    Each saved tensor is a copy of its own, so a tensor that two operations save is copied back twice, at different
    times. Copies to the host are assumed to arrive at once. If the link is slower than the forward, more bytes wait on
    the device. In the worst case all of them wait until the step ends (`Cost.copied_beside`).
    """
    values = cost.values

    def is_weight(name: str) -> bool:
        base = values[name]
        while base.view_of is not None:
            base = values[base.view_of]
        return base.name in cost.parameters

    def moved(operation: Operation) -> Operation:
        back = tuple(replace(values[name], view_of=None) for name in operation.saves if not is_weight(name))
        return replace(
            operation,
            saves=tuple(name for name in operation.saves if is_weight(name)),
            scratch=operation.scratch.and_also(backward=back),
        )

    bases = {cost.lifetimes.base[name] for one in cost.tape for name in one.saves}
    kept = cost.parameters.keys() | {one.name for one in (*cost.tables, *cost.batch.tensors)}
    return replace(cost, tape=tuple(map(moved, cost.tape)), copied_beside=frozenset(bases - kept))


class ActivationOffload(Optimization):
    """Saved tensors on the host."""

    title: ClassVar = "activations on the host"
    stage: ClassVar = Stage.RECOMPUTE
    numerics: ClassVar = Numerics.EXACT
    saves: ClassVar = "device memory of all saved tensors except weights"
    pays: ClassVar = "transfer of every saved byte to the host and back; as much pinned memory of the host"
    sources: ClassVar = ("arXiv:1602.08124", "pytorch: torch.autograd.graph.save_on_cpu", "pytorch/torchtune#1443")
    unseen: ClassVar = "copies between host and device"
    claims: ClassVar = frozenset({"recomputation"})
    traits: ClassVar = frozenset({"copies of what is kept"})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        return {"compiler": "compiled code chooses which tensors it saves; leave out {other} or activation_offload"}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if machine.device(run.device) == "cpu":
            raise Unavailable(
                "activation_offload moves nothing on a CPU, where activations are in the host's memory already; "
                "use a CUDA device"
            )
        if run.ranks > 1:
            raise Conflict(
                "activation_offload runs on one device only; with several ranks use activation_checkpointing"
            )

    def predict(self, cost: Cost, run: ResolvedRun, machine: "Machine") -> Cost:
        return saved_on_host(cost)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.step.device_queue import Offload

        offload = Offload(program.parts)
        return replace(
            program,
            step_contexts=(*program.step_contexts, offload),
            witnesses=(*program.witnesses, offload),
        )

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        memory = trace.memory
        moved, kept = memory.offloaded_saved_bytes, memory.saved_total_bytes + memory.unmoved_saved_bytes
        observed = f"{moved} bytes of saved tensors moved to the host, {kept} kept on the device"
        if memory.moved_weight_bytes:
            observed += f", and {memory.moved_weight_bytes} of weights moved along"
        return self.evidence(observed, moved > 0 and kept == 0 == memory.moved_weight_bytes)
