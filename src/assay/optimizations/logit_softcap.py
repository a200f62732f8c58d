"""Bend logits so that none leaves ±cap: c·tanh(logits/c), as in Gemma 2 (arXiv:2408.00118, section 2).

A logit within a third of the cap c is nearly unchanged, and one far beyond it has nearly no gradient. So logits cannot
grow without bound, and the loss stays finite at large learning rates. Gemma 2 uses c = 30, and the speedruns of
modded-nanogpt 15 to 30. The capped model is another model: evaluation, sampling and checkpoints
(`model.logit_softcap`) have the cap as well. The tanh of all logits is saved for backward, beside their
log-probabilities. With chunks of the loss there are only those of one chunk. A padded vocabulary has logits of −∞,
which a cap makes numbers, and ranks that split the vocabulary are not supported: both are refused.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import PositiveFloat

from assay.config import ModelConfig, ResolvedRun
from assay.cost.layers import Writer, soft_cap
from assay.cost.step_cost import Cost
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected

if TYPE_CHECKING:
    from assay.hardware import Machine
    from assay.step.program import Program

_SITE = "head.projection"


class LogitSoftcap(Optimization):
    """Logits that a scaled tanh keeps within a cap."""

    cap: PositiveFloat = 30.0
    """Bound c of the logits: they become c·tanh(logits/c)."""

    title: ClassVar = "logit soft-cap"
    stage: ClassVar = Stage.MODEL
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "no bytes; a bound of the logits keeps the loss finite at larger learning rates"
    pays: ClassVar = "the tanh of all logits, saved for backward, and three passes over them in each direction"
    sources: ClassVar = ("arXiv:2408.00118", "https://github.com/KellerJordan/modded-nanogpt")
    claims: ClassVar = frozenset({"cap of logits"})

    def trained(self, model: ModelConfig) -> ModelConfig:
        return model.model_copy(update={"logit_softcap": self.cap})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        return {
            "rows of no token": "logit_softcap would make numbers of the −∞ that {other} gives to rows of no token; "
            "set model.vocab_size to the padded size instead",
            "columns of logits": "logit_softcap is not proven where {other} splits the logits among ranks; "
            "leave out one of them",
        }

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.logit_softcap is not None:
            raise Conflict(
                f"logit_softcap has nothing to change: model.logit_softcap={run.model.logit_softcap:g} is set already; "
                "set model.logit_softcap=null to see its effect"
            )

    def predict(self, cost: Cost, run: ResolvedRun, machine: "Machine") -> Cost:
        product = next(one for one in cost.tape if one.site == _SITE)
        (logits,) = product.outputs
        writer = Writer(_SITE, dict(cost.values))
        held = [cost.values[name] for name in product.holds]
        bent = soft_cap(writer, logits, cost.kernels.number_bytes, held)
        at = cost.tape.index(product) + 1
        after = (one.reading({logits.name: bent.name}) for one in cost.tape[at:])
        return replace(cost, tape=(*cost.tape[:at], *writer.operations, *after))

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.model.loss import VocabularyProjection

        for part in program.parts:
            for module in part.modules():
                if isinstance(module, VocabularyProjection):
                    module.cap = self.cap
        return program

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected  # `model` is the capped one already

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.cost import DTYPE_BYTES

        bent = [one for one in trace.operations if one.phase == "forward" and one.name.startswith("aten.tanh")]
        # Each reads a number and writes one for each logit.
        logits = sum(one.bytes // (2 * DTYPE_BYTES[one.dtype]) for one in bent)
        # A loop of a compiler shows its operators without bytes.
        fused = bool(bent) and not any(one.bytes for one in bent)
        observed = f"the tanh of {'all' if fused else logits} logits in {len(bent)} calls"
        if run.model.n_layer - 1 not in trace.blocks:
            return self.evidence(f"{observed}: another rank computes the loss", not bent)
        tokens = trace.batch.sequences * run.model.context_length // trace.ranks.get("cp", 1)
        return self.evidence(observed, fused or logits == tokens * run.model.vocabulary)
