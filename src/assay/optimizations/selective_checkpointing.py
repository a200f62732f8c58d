"""Recompute in backward the results that are cheap to compute and large to keep, and save the rest.

There are two policies. `attention` recomputes only the attention core (Korthikanti et al. 2022, arXiv:2205.05198,
section 5). At long contexts its T × T scores and probabilities are most of a block's saved bytes, and few of its FLOPs.
`matmuls` saves a block's input and the results of its tensor contractions. It recomputes everything else: norms,
softmax, activations, dropout, copies; no matrix product is recomputed. A fused attention kernel saves no scores in the
first place. With it, `attention` saves next to nothing (one number a row and head) and costs a forward of the kernel.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from assay.config import ResolvedRun
from assay.config.run import Scalar
from assay.hardware.detect import release, torch_version
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unavailable, Unplanned
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.cost import Cost, Tape
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program

CONTRACTIONS = (
    *("mm", "addmm", "bmm", "baddbmm", "_scaled_dot_product_flash_attention_for_cpu"),
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
    "_scaled_dot_product_cudnn_attention",
)
"""Torch operators whose results `matmuls` saves."""


_TELLS_RESULTS = (2, 13)
"""Release of torch from which a policy is told the result that it decides on; 2.11 does not tell it."""


class SelectiveCheckpointing(Optimization):
    """Recompute a part of every block."""

    policy: Literal["attention", "matmuls"] = "attention"
    """Results that are saved: `attention` saves all outside the attention core, `matmuls` those of matrix products."""

    title: ClassVar = "selective checkpointing"
    stage: ClassVar = Stage.RECOMPUTE
    numerics: ClassVar = Numerics.EXACT
    saves: ClassVar = "saved tensors of norms, softmax, activations and copies; or all those of the attention core"
    pays: ClassVar = "recomputation of those operations: little arithmetic, but each reads and writes its tensors"
    sources: ClassVar = ("arXiv:2205.05198", "pytorch.org/docs: create_selective_checkpoint_contexts")
    claims: ClassVar = frozenset({"recomputation"})
    traits: ClassVar = frozenset({"chosen operations"})

    def lay_out(self, layout: "Layout") -> "Layout":
        if self.policy != "attention":
            raise Unplanned(f"selective_checkpointing:policy={self.policy}")
        return replace(layout, recompute="selective")

    @classmethod
    def choices(cls, run: ResolvedRun) -> tuple[dict[str, Scalar], ...]:
        """Both policies."""
        return ({}, {"policy": "matmuls"})

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.ranks > 1:
            raise Conflict(
                "selective_checkpointing is proven on one device only; with several ranks use activation_checkpointing"
            )
        installed = torch_version()
        if self.policy == "matmuls" and installed is not None and release(installed) < _TELLS_RESULTS:
            raise Unavailable(
                "selective_checkpointing:policy=matmuls needs torch 2.13, which tells a policy each result; install "
                "it, or use policy=attention"
            )
        if self.policy == "matmuls" and run.model.n_expert is not None:
            raise Conflict(
                "selective_checkpointing:policy=matmuls does not cover the grouped products of a mixture of experts; "
                "use policy=attention"
            )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        if self.policy == "matmuls":
            keeping = replace(cost, backward=replace(cost.backward, kept_results=frozenset({"contraction"})))
            apart = keeping.rewrite(lambda site: site.endswith(".attention.core"), _sum_apart)
            return apart.recomputing(cost.block_sites, noise=run.model.dropout > 0)
        inside = cost.rewrite(lambda site: site.endswith(".attention"), _repeat_in_core)
        cores = (f"{site}.attention.core" for site in cost.block_sites)
        return inside.recomputing(cores, noise=run.model.dropout > 0)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        import torch
        from torch.utils.checkpoint import create_selective_checkpoint_contexts

        from assay.model import Attention, Block
        from assay.step.recomputed import ResultsKept, repeat_in_backward

        again: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": run.model.dropout > 0}
        kept: tuple[ResultsKept, ...] = ()
        if self.policy == "matmuls":
            kept = (ResultsKept(getattr(torch.ops.aten, name).default for name in CONTRACTIONS),)
            again["context_fn"] = partial(create_selective_checkpoint_contexts, kept[0])
        modules = [module for part in program.parts for module in part.modules()]
        cores = [module.core for module in modules if isinstance(module, Attention)]
        blocks = [module for module in modules if isinstance(module, Block)]
        repeat_in_backward(cores if self.policy == "attention" else blocks, again)
        return replace(program, witnesses=(*program.witnesses, *kept))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.dropout import unequal_again

        wrong, blocks = unequal_again(trace), len(trace.blocks) * trace.forwards
        products = trace.contractions(phase="recompute")
        norms = trace.of_class("normalization", "recompute")
        others = norms + trace.of_class("elementwise", "recompute")
        observed = f"{products} matmuls and {others} other computations of {blocks} blocks recomputed in backward"
        if self.policy == "attention":
            # Only the core's first product is recomputed: the second saves its inputs before it executes.
            within = trace.count("bmm", "attention", phase="recompute")
            return self.evidence(observed + wrong, within == products == blocks and not wrong)
        whole = sum(one.normalizations for one in trace.block_forwards)
        observed += f", including {norms} of {whole} normalizations"
        return self.evidence(observed + wrong, products == 0 < norms == whole and not wrong)


def _repeat_in_core(operations: "Tape") -> Iterable[Any]:
    """Move the repetition of key and value heads into the core, whose recomputed forward repeats them."""
    for one in operations:
        yield replace(one, site=f"{one.site}.core") if one.name == "aten.repeat_interleave" else one


def _sum_apart(operations: "Tape") -> Iterable[Any]:
    """Let unfused attention add its mask out of place, as torch does when a policy selects results to save."""
    for one in operations:
        in_place = one.name == "aten.add" and one.outputs[0].view_of is not None
        yield replace(one, outputs=(replace(one.outputs[0], view_of=None),)) if in_place else one
