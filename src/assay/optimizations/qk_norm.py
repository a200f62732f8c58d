"""RMS-normalize the queries and keys of every head, so that no product of theirs outgrows the others.

Each head's query and key become x/rms(x) times a learned gain, before positions rotate them (arXiv:2010.04245). Their
products are then at most √d times both gains, so attention cannot saturate as weights grow; ViT-22B (arXiv:2302.05442)
needed it to stay stable, and Qwen3 and the speedruns of modded-nanogpt have it. Backward needs the queries and keys
from before the norm as well. The model is another one, and its checkpoint says so (`model.qk_norm=true`).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from assay.config import ModelConfig, ResolvedRun
from assay.cost.layers import Tape
from assay.cost.operation import Operation
from assay.cost.step_cost import Cost, baseline
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected

if TYPE_CHECKING:
    from assay.hardware import Machine
    from assay.step.program import Program

_NORMS = (".q_norm.weight", ".k_norm.weight")


class QKNorm(Optimization):
    """RMS norms of queries and keys, in each head."""

    title: ClassVar = "QK norm"
    stage: ClassVar = Stage.MODEL
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "no bytes; bounded scores of attention allow larger learning rates"
    pays: ClassVar = "two norms a block, and what they save: queries and keys from before them"
    sources: ClassVar = ("arXiv:2010.04245", "arXiv:2302.05442")
    practice: ClassVar = "Qwen3"
    claims: ClassVar = frozenset({"norms of heads"})

    def trained(self, model: ModelConfig) -> ModelConfig:
        return model.model_copy(update={"qk_norm": True})

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.qk_norm:
            raise Conflict(
                "qk_norm has nothing to add: the model normalizes queries and keys already; "
                "set model.qk_norm=false to see its effect"
            )
        if run.model.init_from is not None:
            raise Conflict("qk_norm adds gains that model.init_from does not have; leave out one of them")

    def predict(self, cost: Cost, run: ResolvedRun, machine: "Machine") -> Cost:
        changed = baseline(run.model_copy(update={"model": self.trained(run.model)}), cost.kernels)
        attention: dict[str, list[Operation]] = {}
        for one in changed.tape:
            attention.setdefault(_block_of(one), []).append(one)
        kept = {name: cost.parameters.get(name, one) for name, one in changed.parameters.items()}
        return replace(cost, tape=tuple(_exchanged(cost.tape, attention)), parameters=kept).holding(kept)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        import torch
        from torch.nn import RMSNorm

        from assay.model import Attention

        for part in program.parts:
            for module in list(part.modules()):
                if isinstance(module, Attention):
                    module.config = self.trained(module.config)
                    with torch.device("meta"):
                        width, eps = module.config.head_dim, module.config.norm_eps
                        module.q_norm, module.k_norm = RMSNorm(width, eps=eps), RMSNorm(width, eps=eps)
        return program

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected  # `model` has the norms already

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        gains = [one for one in trace.parameters if one.name.endswith(_NORMS)]
        numbers = sum(one.whole_bytes for one in gains)
        observed = f"{len(gains)} gains of queries and keys, {numbers} bytes, in {len(trace.blocks)} blocks"
        return self.evidence(observed, len(gains) == 2 * len(trace.blocks) > 0)


def _block_of(one: Operation) -> str:
    """Return the site of the attention that an operation belongs to; empty: none."""
    parts = one.site.split(".")
    return ".".join(parts[:3]) if parts[0] == "blocks" and parts[2:3] == ["attention"] else ""


def _exchanged(tape: Tape, attention: dict[str, list[Operation]]) -> Iterable[Operation]:
    """Yield the tape with other operations for each attention."""
    done: set[str] = set()
    for one in tape:
        site = _block_of(one)
        if not site:
            yield one
        elif site not in done:
            done.add(site)
            yield from attention[site]
