"""Square a ReLU in the place of GELU in the MLP: max(0, x)² (Primer, arXiv:2109.08668).

Primer's search found it as the simplest change that lowers the loss, and the speedruns of modded-nanogpt use it. About
half of the hidden units are exactly zero. Backward needs the ReLU's result, which takes the place of the input that
GELU saves, so a step saves as many bytes. The square has two gradients, one for each factor, and their sum: backward
has three tensors of the hidden width where GELU's has one. The model is another one, and its checkpoint says so
(`model.activation=squared_relu`). A gated MLP has no GELU, and is refused.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from assay.config import ModelConfig, ResolvedRun
from assay.cost.layers import Tape, Writer, squared_relu
from assay.cost.operation import Operation, alter
from assay.cost.step_cost import Cost
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected

if TYPE_CHECKING:
    from assay.hardware import Machine
    from assay.step.program import Program


class SquaredReLU(Optimization):
    """The square of a ReLU in each MLP, or in each expert."""

    title: ClassVar = "squared ReLU"
    stage: ClassVar = Stage.MODEL
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "steps to a given loss, by its paper; the error function of GELU"
    pays: ClassVar = "two more tensors of the hidden width while its gradients are summed in backward"
    sources: ClassVar = ("arXiv:2109.08668", "https://github.com/KellerJordan/modded-nanogpt")
    claims: ClassVar = frozenset({"activation function"})

    def trained(self, model: ModelConfig) -> ModelConfig:
        return model.model_copy(update={"activation": "squared_relu"})

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.activation not in ("gelu", "gelu_tanh"):
            raise Conflict(
                f"squared_relu replaces GELU, and model.activation={run.model.activation} has none; "
                "set model.activation=gelu"
            )

    def predict(self, cost: Cost, run: ResolvedRun, machine: "Machine") -> Cost:
        def squared(one: Tape) -> Iterable[Operation]:
            (gelu,) = one
            writer = Writer(gelu.site, dict(cost.values))
            squared_relu(writer, cost.values[gelu.inputs[0]])
            *before, last = writer.operations
            return (*before, alter(last, outputs=gelu.outputs))

        return cost.rewrite(lambda site: site.endswith(".activation"), squared)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from torch.nn import GELU

        from assay.model.activation import SquaredReluModule

        for part in program.parts:
            for module in list(part.modules()):
                if isinstance(getattr(module, "activation", None), GELU):
                    module.activation = SquaredReluModule()
        return program

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected  # `model` has it already

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        relu, gelu = trace.count("aten.relu", phase="forward"), trace.count("aten.gelu")
        observed = f"{relu} ReLUs in forward and {gelu} GELUs in {len(trace.blocks)} blocks"
        return self.evidence(observed, relu == len(trace.blocks) * trace.forwards and gelu == 0)
