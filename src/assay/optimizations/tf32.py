"""Let the tensor cores of an NVIDIA GPU multiply float32 matrices with ten bits of mantissa, and add up in float32.

TF32 has float32's range and float16's digits. Inputs are rounded in the kernel, so nothing in memory changes (NVIDIA
A100 whitepaper, 2020). Weights, activations, gradients and state stay float32, and so does all arithmetic outside
matrix products. The setting is a permission: the library may choose another kernel for a product of an odd shape. Under
mixed precision no float32 product is left.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.hardware import AMPERE
from assay.optimizations.optimization import Numerics, Optimization, Stage, Unavailable
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected, lossy

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program

_GRADIENT_ERROR = 0.02
"""Largest relative error of one gradient."""
_SLOPE_ERROR = 0.01
"""Largest error of a gradient's scale."""
_LOSS_ERROR = 1e-4
"""Largest relative error of the loss."""
_ROUNDED = 2**-15
"""Relative error that TF32 must cause in some gradient."""
_NEAR = lossy(_GRADIENT_ERROR, at_least=_ROUNDED, slope=_SLOPE_ERROR, loss=_LOSS_ERROR)


class Tf32(Optimization):
    """Products of float32 matrices in TF32."""

    title: ClassVar = "TF32 matrix products"
    stage: ClassVar = Stage.PRECISION
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.LOSSY
    saves: ClassVar = "time in matrix products; no memory"
    pays: ClassVar = "10 bits of mantissa in the inputs of products"
    sources: ClassVar = ("NVIDIA A100 Tensor Core GPU Architecture (2020)",)
    practice: ClassVar = "more than 80 networks (NVIDIA, Accelerating AI Training with TF32 Tensor Cores, 2021)"
    claims: ClassVar = frozenset({"forward precision"})

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if machine.device(run.device) != "cuda":
            raise Unavailable(
                "tf32 is a format of NVIDIA's tensor cores, which a CPU does not have; "
                "use a GPU of compute capability 8.0 (Ampere) or newer"
            )
        if older := machine.older_than(AMPERE):
            raise Unavailable(f"tf32 needs a GPU of compute capability 8.0 (Ampere) or newer; {older.name} is older")

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        tape = (replace(one, products="tf32") if one.kind == "contraction" else one for one in cost.tape)
        return replace(cost, tape=tuple(tape))

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        return replace(program, step_contexts=(*program.step_contexts, _allowed))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected.loosened(gradients=_NEAR)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        allowed, total = trace.contractions(dtype="tf32"), trace.contractions()
        return self.evidence(f"TF32 was allowed in {allowed} of {total} matmuls", 0 < allowed == total)


@contextmanager
def _allowed() -> Iterator[None]:
    """Allow TF32 during forward and backward. The setting is global to the process, so it is restored afterwards."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
