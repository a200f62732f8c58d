"""Let the projection to the vocabulary share the token embedding's weight (arXiv:1608.05859).

Both are `vocabulary × n_embd` numbers. One matrix in place of two saves its weight, gradient and optimizer state: 39 of
163 million parameters at GPT-2's smallest size. The tied model is another model, and so another training run: a row
learns from each token as an input and as an output. The checkpoint is that of a model with `tie_embeddings=true`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import ModelConfig, ResolvedRun
from assay.config.model import EMBEDDING_WEIGHT, HEAD_WEIGHT
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected

if TYPE_CHECKING:
    from assay.cost import Cost, Operation
    from assay.hardware import Machine
    from assay.step.program import Program


class WeightTying(Optimization):
    """One weight for the token embedding and the output projection, of a model that has two."""

    title: ClassVar = "weight tying"
    stage: ClassVar = Stage.MODEL
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "weight, gradient and optimizer state of the projection to the vocabulary"
    pays: ClassVar = "one sum of two gradients of the embedding's size; one trained matrix less"
    sources: ClassVar = ("arXiv:1608.05859", "arXiv:1611.01462")
    claims: ClassVar = frozenset({"tied weights"})

    def trained(self, model: ModelConfig) -> ModelConfig:
        return model.model_copy(update={"tie_embeddings": True})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        return {
            "stages": "weight_tying is not proven with {other}, whose stages hold a copy each; set "
            "model.tie_embeddings=true, which {other} supports"
        }

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.tie_embeddings:
            raise Conflict(
                "weight_tying has nothing to tie: the model's embeddings are one weight already; "
                "set model.tie_embeddings=false to see its effect"
            )
        if run.model.init_from is not None:
            raise Conflict("weight_tying would discard the output projection of model.init_from; leave out one of them")

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        def tied(operation: "Operation") -> "Operation":
            inputs = tuple(EMBEDDING_WEIGHT if name == HEAD_WEIGHT else name for name in operation.inputs)
            saves = tuple(EMBEDDING_WEIGHT if name == HEAD_WEIGHT else name for name in operation.saves)
            return replace(operation, inputs=inputs, saves=saves)

        one = {name: tensor for name, tensor in cost.parameters.items() if name != HEAD_WEIGHT}
        held = {name: tensor for name, tensor in cost.pieces.items() if name != HEAD_WEIGHT}
        return replace(cost, tape=tuple(map(tied, cost.tape)), parameters=one).holding(held)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.model import TIED, tie

        for part in program.parts:
            tie(part, TIED)
        return replace(program, weights=replace(program.weights, tied=TIED))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected  # `model` is the tied one already

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        shared = sum({HEAD_WEIGHT, EMBEDDING_WEIGHT} <= set(names) for names in trace.shared_parameters)
        own, _ = trace.held(HEAD_WEIGHT)
        observed = f"{shared} storage shared by embedding and projection, {own} bytes in a separate projection"
        return self.evidence(observed, shared == 1 and own == 0)
