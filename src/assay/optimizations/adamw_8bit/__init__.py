"""AdamW with both moments in 8 bits, in blocks of 256 with a scale each.

Codes are denser near zero. The scale of each block confines the effect of an outlier to its own block
(arXiv:2110.02861). A weight keeps moments of its own width if it has fewer than 4,096 elements, or a number that 256
does not divide. With GPT-2's 50,257 rows this concerns every embedding whose width 256 does not divide, and much of a
small model. The implementation is torchao's. For GPT-2 124M it keeps 2.04 bytes of state a parameter instead of 8. The
update compiles itself for each shape of weight, during the first step. Its temporaries are both moments of one weight
at full width.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.cost.operation import DTYPE_BYTES, Tensor
from assay.cost.update_rules import AdamWUpdate, Instant, Pieces, counts, in_order, like
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unavailable
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected
from assay.reference.rules import EightBitAdamWRule, plain_adamw

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program

_SMALLEST, _BLOCK, _CODES = 4096, 256, 256


@dataclass(frozen=True)
class EightBitAdamWUpdate(AdamWUpdate):
    """torchao's AdamW, in one compiled kernel, which reads weight, gradient and codes and writes weight and codes.

    A moment is coded if it has 4,096 numbers or more, in whole blocks of 256. It has a code of one byte for each number
    and a float32 scale for each block. Its own table holds the 256 values of the codes. Every other moment is as wide
    as its weight. The temporaries of the update are the compiler's choice. Both moments of one weight at full width are
    the most that its arithmetic names, and are assumed here.
    """

    passes: ClassVar = 4.0
    launches: ClassVar = 1.0

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """Two moments for each parameter, each of one tensor or of three, and its step count."""
        moments = like(pieces, 2)
        return (*(part for one in moments for part in _parts(one)), *counts(pieces))

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """Both moments of one parameter, in float32."""
        width = 2 * DTYPE_BYTES["float32"]
        return tuple(Instant("AdamW8bit", one.name, width * one.elements) for one in in_order(pieces))


def is_coded(moment: Tensor) -> bool:
    """True if the moment is kept in 8 bits: it is large enough and has whole blocks."""
    return moment.elements >= _SMALLEST and moment.elements % _BLOCK == 0


def _parts(moment: Tensor) -> Iterator[Tensor]:
    if not is_coded(moment):
        yield moment
        return
    yield moment.cast("uint8")
    scales = replace(moment, name=f"scale.{moment.name}", shape=(moment.elements // _BLOCK,), dtype="float32")
    yield scales
    yield replace(scales, name=f"table.{moment.name}", shape=(_CODES,))


_SLACK = 0.01
"""Tolerance of the state's size, relative: tables of codes may have another size."""


class Adamw8Bit(Optimization):
    """AdamW with moments in 8 bits."""

    title: ClassVar = "AdamW with state in 8 bits"
    stage: ClassVar = Stage.OPTIMIZER
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.LOSSY
    saves: ClassVar = "three quarters of Adam's state of every weight of whole blocks of 256: 2 bytes a parameter"
    pays: ClassVar = "moments with 256 levels a block; compilation of the update in the first step"
    sources: ClassVar = ("arXiv:2110.02861", "https://github.com/pytorch/ao/tree/main/torchao/optim")
    practice: ClassVar = "language models of up to 1.5 B parameters (arXiv:2110.02861)"
    claims: ClassVar = frozenset({"optimizer", "weight decay"})
    traits: ClassVar = frozenset({"8-bit state"})
    compiles: ClassVar = True

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if not machine.absent and find_spec("torchao") is None:
            raise Unavailable("adamw_8bit needs torchao, which is not installed; pip install 'assay[low-bit]'")
        if run.ranks > 1:
            raise Conflict("several ranks cannot write the state of adamw_8bit to a checkpoint; use adamw_bf16_state")
        self._check_weights(run)

    def _check_weights(self, run: ResolvedRun) -> None:
        from assay.cost import parameters

        if run.model.vocab_size is None:  # unknown until the corpus is prepared; then the check runs once more
            return
        if not any(map(is_coded, parameters(run.model).values())):
            raise Conflict(
                "adamw_8bit needs weights of at least 4,096 elements in whole blocks of 256, and this model has none; "
                "use adamw_bf16_state"
            )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        return cost.updated_by(EightBitAdamWUpdate())

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizations.adamw_8bit.step import adamw_8bit

        return replace(program, optimizer=adamw_8bit(run.training))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected.changed(rule=EightBitAdamWRule(**plain_adamw(expected.rule).model_dump()))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.cost import DTYPE_BYTES, Tensor
        from assay.proofs.optimizer_updates import adamw_faults, compiled_updates, updated_by

        # The number of elements decides how a weight's moments are kept.
        numbers = {one.name: one.whole_bytes // DTYPE_BYTES[one.dtype] for one in trace.trained}
        pieces = {one.name: Tensor(one.name, (numbers[one.name],), one.dtype) for one in trace.trained}
        expected = sum(one.nbytes for one in EightBitAdamWUpdate().state(pieces))
        # Counted at the storages, because an 8-bit moment reports the dtype of its weight.
        state, wide = trace.memory.optimizer_state_bytes, 2 * trace.trained_bytes
        observed = f"{state} bytes of state; two moments as wide as the weights take {wide}, in 8 bits {expected}"
        # The update is compiled, unless a dispatch mode had to see its operators.
        moved = max(compiled_updates(trace), updated_by(trace, "aten.copy_"))
        wrong = adamw_faults(trace, run.training)
        if moved != len(trace.trained):
            observed += f"; {moved} of {len(trace.trained)} parameters updated"
        whole = moved == len(trace.trained) and abs(state - expected) <= _SLACK * expected and state < wide
        return self.evidence(observed + wrong, whole and not wrong)
