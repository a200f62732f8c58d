"""Compute matrix products in bfloat16; keep weights, gradients, optimizer state and the loss in float32.

bfloat16 has float32's range, so no gradient scaler is needed (arXiv:1905.12322). Autocast casts each weight once per
forward. It keeps that copy until the forward ends, or until backward has used it. Without hardware support
(AVX512-BF16, AMX, or an Ampere GPU) products are computed by conversion, and the step gets slower. The router of a
mixture of experts stays in float32: a rounded probability routes a token to another expert (arXiv:2101.03961).
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.hardware import AMPERE
from assay.optimizations.optimization import Numerics, Optimization, Stage, Unavailable
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import IN_BFLOAT16, Expected

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class Bf16Mixed(Optimization):
    """Automatic mixed precision in bfloat16."""

    title: ClassVar = "mixed precision (bfloat16)"
    stage: ClassVar = Stage.PRECISION
    usual: ClassVar = "half of the activations; faster where it is native"
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.LOSSY
    saves: ClassVar = "half of the saved tensors of matrix products; time where bfloat16 is native"
    pays: ClassVar = "a bfloat16 copy of every weight during the step; 8 bits of mantissa in products"
    sources: ClassVar = ("arXiv:1710.03740", "arXiv:1905.12322")
    practice: ClassVar = "models of up to 176 B parameters (arXiv:2211.05100)"
    claims: ClassVar = frozenset({"forward precision"})
    traits: ClassVar = frozenset({"16-bit products"})

    def lay_out(self, layout: "Layout") -> "Layout":
        # A plan's closed forms assume 16-bit products already.
        return layout

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if machine.device(run.device) == "cuda" and (older := machine.older_than(AMPERE)):
            raise Unavailable(
                f"bf16_mixed needs a GPU of compute capability 8.0 (Ampere) or newer; {older.name} is older"
            )

    def known_loss(self, run: ResolvedRun, machine: "Machine") -> str:
        return machine.converts("bfloat16", run.device)

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.rewrites.low_precision import autocast

        return autocast(cost, "bfloat16")

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        import torch

        context = partial(torch.autocast, program.device.type, dtype=torch.bfloat16)
        precision = replace(program.precision, forward_contexts=(*program.precision.forward_contexts, context))
        return replace(program, precision=precision)

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected.loosened(gradients=IN_BFLOAT16)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.precision import products_in

        return self.evidence(*products_in("bfloat16", trace, run))
