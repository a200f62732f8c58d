"""AdamW whose two moments are kept in 8 bits, in blocks of 256 with a scale each.

Codes are spaced more densely near zero, and a scale of its own keeps a block with an outlier from flattening the others
(arXiv:2110.02861). Tensors of fewer than 4,096 numbers stay as they are. It is torchao's, and keeps about 2.1 bytes of
state a parameter in the place of 8. What its compiled update makes on the way is not predicted: it has not yet been run
by this project, which had no torchao.
"""

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from assay.config import Run
from assay.optimizations.base import Conflict, Numerics, Optimization, Stage, Unavailable, Unpredicted
from assay.step import Evidence, Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program

_TABLES = 1.05
"""What more may be held: weights that are padded, tables of another size."""


class Adamw8Bit(Optimization):
    """AdamW with moments in 8 bits."""

    title: ClassVar = "AdamW with state in 8 bits"
    stage: ClassVar = Stage.OPTIMIZER
    numerics: ClassVar = Numerics.LOSSY
    saves: ClassVar = "three quarters of Adam's optimizer state: about 2.1 bytes a parameter"
    pays: ClassVar = "moments of 256 levels a block; an update that compiles itself in the first step"
    sources: ClassVar = ("arXiv:2110.02861", "https://github.com/pytorch/ao/tree/main/torchao/optim")
    claims: ClassVar = frozenset({"optimizer"})

    def check(self, run: Run, machine: "Machine") -> None:
        if find_spec("torchao") is None:
            raise Unavailable("adamw_8bit needs torchao, which is not installed; pip install 'assay[low-bit]'")
        if run.ranks > 1:
            raise Conflict("the state of adamw_8bit cannot be written by several ranks; use adamw_bf16_state")

    def predict(self, cost: "Cost", run: Run, machine: "Machine") -> "Cost":
        raise Unpredicted(self.name())

    def apply(self, program: "Program", run: Run) -> "Program":
        from assay.optimizers.eight_bit import adamw_8bit

        return replace(program, optimizer=adamw_8bit(run.training))

    def verify(self, trace: Trace, run: Run) -> Evidence:
        from assay.cost import parameters
        from assay.cost.adam_updates import eight_bit_state_bytes

        held = {one.name for one in trace.parameters}
        expected = eight_bit_state_bytes({name: one for name, one in parameters(run.model).items() if name in held})
        # Counted at the storages: a moment of 8 bits says of itself that it is as wide as its weight.
        state, wide = trace.optimizer_state_bytes, 2 * trace.parameter_bytes
        observed = f"{state} bytes of state, where two moments as wide as the weights are {wide} and 8 bits {expected}"
        return self.evidence(observed, 0 < state <= _TABLES * expected < wide)
