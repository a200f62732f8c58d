"""AdamW with both moments in bfloat16: half of the state, the arithmetic as before.

Moments are widened for their update and rounded to nearest afterwards. With 8 bits of mantissa, changes below a 256th
are lost, so a moment with β₁ or β₂ above 0.996 could never decay. Such a run is refused. The state is 4 bytes a
parameter.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected, lossy
from assay.reference.rules import NarrowStateAdamWRule

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program

_LAST_BIT = 2**-8
"""Smallest relative change that rounding to bfloat16 never loses."""
_UPDATE_ERROR = 3e-4
"""Largest relative error of an update, compared with a replay that rounds its moments too."""


class AdamwBf16State(Optimization):
    """AdamW with moments in bfloat16."""

    title: ClassVar = "AdamW with state in bfloat16"
    stage: ClassVar = Stage.OPTIMIZER
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.LOSSY
    saves: ClassVar = "half of Adam's optimizer state: 4 bytes a parameter"
    pays: ClassVar = "moments with 8 bits of mantissa; a second moment that changes in jumps"
    sources: ClassVar = ("arXiv:1711.05101", "arXiv:2110.02861")
    practice: ClassVar = "a mixture of 671 B parameters (arXiv:2412.19437)"
    claims: ClassVar = frozenset({"optimizer", "weight decay"})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        return {"16-bit state": "{other} already keeps optimizer state in 16 bits; leave out adamw_bf16_state"}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        for name in ("beta1", "beta2"):
            if 1 - getattr(run.training, name) <= _LAST_BIT:
                raise Conflict(
                    f"a moment in bfloat16 cannot decay by less than a 256th a step; set training.{name} below 0.996"
                )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.update_rules import NarrowAdamWUpdate

        return cost.updated_by(NarrowAdamWUpdate())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizations.adamw_bf16_state.step import narrow_adamw

        return replace(program, optimizer=narrow_adamw(run.training))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        rule = NarrowStateAdamWRule(**expected.rule.model_dump(exclude={"coupled"}), dtype="bfloat16")
        return expected.changed(rule=rule).loosened(updates=lossy(_UPDATE_ERROR))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.optimizer_updates import adamw_faults, updated_by

        updates, parameters = updated_by(trace, "aten.addcdiv_"), len(trace.trained)
        state = trace.memory.whole_optimizer_state_bytes - 4 * parameters  # one step count for each parameter
        observed = f"{state} bytes of two moments for {trace.trained_bytes} bytes of weights"
        if updates != parameters:
            observed += f"; {updates} of {parameters} parameters updated"
        moments = sum(2 * 2 * prod(one.whole_shape) for one in trace.trained)
        narrow = trace.memory.whole_state_bytes.get("bfloat16", 0) == state == moments
        wrong = adamw_faults(trace, run.training)
        return self.evidence(observed + wrong, 0 < updates == parameters and narrow and not wrong)
