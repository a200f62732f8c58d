"""Keep optimizer state on the host and update the weights there; optionally keep weights on the host too.

Adam's two moments are twice the weights, and are used once a step. On the host they take no device memory. Every step
then sends weights and gradients to the host and the updated weights back, and waits while the CPU updates. This is
ZeRO-Offload (arXiv:2101.06840) for one device, without its delayed update. The more tokens a step has, the less this
weighs. The CPU runs the loop of the run's own optimizer.

With `parameters` the device holds a module's weights only while it needs them (ZeRO-Infinity does so on many devices,
arXiv:2104.07857). They are copied to the device for each forward, and matrices once more for backward. Gradients are
moved to the host as each module's backward ends, while the host waits. Under mixed precision the 16-bit copies stay
until backward. Over ranks, `fully_sharded:offload=true` does the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.cost.operation import Gradient, Operation, Tensor
from assay.cost.step_cost import Cost
from assay.cost.update_rules import OnHost
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unavailable
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.hardware import Machine
    from assay.step.program import Program


def weights_on_host(cost: Cost) -> Cost:
    """The ledger of a device that holds no weights, gradients or optimizer state between uses.

    Forward holds copies of all weights of a module. Each node of backward copies its own weight again. A recomputed
    module instead keeps its copies until the backward that follows has finished. Gradients of a module are moved to the
    host after the last node of its backward.
    """
    tape: list[Operation] = []
    for site, run in groupby(cost.tape, key=lambda one: _unit(one.site)):
        tape.extend(_fetched(cost, site, tuple(run)))
    return replace(cost, tape=tuple(tape)).updated_by(OnHost()).holding({})


def _fetched(cost: Cost, site: str, run: tuple[Operation, ...]) -> Iterator[Operation]:
    """A module's operations on copies of its weights, which its frame holds until it ends."""
    read = {name for one in run for name in one.inputs}
    copies = {name: replace(one, name=f"{name} for {site}") for name, one in cost.parameters.items() if name in read}
    yield from (_fetch(site, name, copy) for name, copy in copies.items())
    names, frame = ({name: copy.name for name, copy in copies.items()}, tuple(one.name for one in copies.values()))
    for one in (*run[:-1], replace(run[-1], holds=(*run[-1].holds, *frame))):
        yield (one if one.within(*cost.backward.recomputed) else _dropping(one, copies)).reading(names)


def _fetch(site: str, name: str, copy: Tensor) -> Operation:
    return Operation(
        name="aten._to_copy",
        site=site,
        kind="movement",
        inputs=(name,),
        outputs=(copy,),
        gradients=(Gradient.NONE,),
        backward="ToCopyBackward",
    )


def _dropping(operation: Operation, copies: Mapping[str, Tensor]) -> Operation:
    """The operation without saved copies of weights; backward copies each again as a temporary."""
    back = tuple(copies[name] for name in operation.saves if name in copies)
    saves = tuple(name for name in operation.saves if name not in copies)
    return replace(operation, saves=saves, scratch=operation.scratch.and_also(backward=back))


def _unit(site: str) -> str:
    parts = site.split(".")
    return ".".join(parts[:3] if parts[0] == "blocks" else parts[:1])


_FIXED = {
    "copies of what is kept": "has hooks of its own on tensors saved for backward",
    "compiler": "generates code for weights that are not moved",
    "recorded graphs": "replays graphs with the addresses that weights had during capture",
    "weights of another kind": "casts weights to a tensor type of its own",
    "frozen weights": "freezes weights, which would have to be fetched without gradients",
    "chosen operations": "is not proven with weights that are moved during the step",
}
"""Traits that exclude weights which are on the device only while a module needs them, and the reasons."""


class CpuOffload(Optimization):
    """Optimizer state and update on the host."""

    parameters: bool = False
    """Keep weights and gradients on the host, too."""

    title: ClassVar = "optimizer on the host"
    stage: ClassVar = Stage.STEP
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = (
        "device memory of optimizer state; with `parameters` also of all weights and gradients but one module's"
    )
    pays: ClassVar = "transfer of 12 bytes a float32 weight in every step, and an update at the CPU's speed"
    sources: ClassVar = ("arXiv:2101.06840", "arXiv:2104.07857")
    unseen: ClassVar = "copies between host and device, and the update on the host"
    claims: ClassVar = frozenset({"update"})
    traits: ClassVar = frozenset({"host reads"})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        reasons = _FIXED if self.parameters else {}
        return {
            trait: f"{{other}} {why}; leave it out, or cpu_offload:parameters=true" for trait, why in reasons.items()
        }

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if machine.device(run.device) == "cpu":
            raise Unavailable(
                "cpu_offload moves nothing on a CPU, where optimizer state is in the host's memory already; "
                "use a CUDA device"
            )
        if run.ranks > 1:
            raise Conflict("cpu_offload runs on one device only; with several ranks use fully_sharded:offload=true")
        if self.parameters and run.model.n_expert is not None:
            raise Conflict("cpu_offload:parameters=true is proven with dense models only; leave out parameters")

    def predict(self, cost: Cost, run: ResolvedRun, machine: "Machine") -> Cost:
        if self.parameters:
            return weights_on_host(cost)
        return cost.updated_by(OnHost())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        if self.parameters:
            from assay.optimizations.cpu_offload.step import weights_on_host

            return weights_on_host(program)
        from assay.step.stand_in_update import update_on_host

        return update_on_host(program)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        away, state = trace.memory.offloaded_state_bytes, trace.memory.optimizer_state_bytes
        observed = f"{away} of {state} bytes of optimizer state in the host's memory instead of the device's"
        shown = 0 < away == state
        if self.parameters:
            observed += f", and {trace.memory.offloaded_bytes} of {trace.memory.parameter_bytes} bytes of weights"
            shown = shown and 0 < trace.memory.offloaded_bytes == trace.memory.parameter_bytes
        return self.evidence(observed, shown)
