"""Let torch compile the forward and backward of each block: element-wise chains become single loops.

Operators that run one by one write every intermediate to memory and read it back. The compiler (TorchDynamo and
TorchInductor) captures a graph and generates code that fuses them, around the same library calls for matrix products.
Embedding, block and head are separate regions, so compile time does not grow with the number of layers; no graph may
break. A chunked loss stays eager: compiled, all its chunks would be alive at once. The first step and the first
evaluation compile, for seconds to minutes, so a short run only loses time. The partitioner's minimum cut decides which
tensors are saved for backward: inputs of products, and little else. The ledger follows the code that torch 2.13
generates for a CPU. Four steps on an H200 are within 1 %, recomputed blocks on an absent one within 4 %. Dropout's
noise stays torch's own, so the same seed trains the same run.

With `regions=model` the whole model is one region. Loops then reach from one block into the next, and the host enters
compiled code once a micro-batch. It compiles every block, so compile time grows with the layers. The memory of such
code is not predicted. On six small models the ledger of one region was within 1.1 % for two, and up to 28 % too high.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unavailable, Unpredicted
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program

_SETTINGS: dict[str, dict[str, bool]] = {
    "default": {},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
}
_BY_BLOCKS = {
    "recomputation": "is proven from the forwards of single blocks, which a region of the whole model hides",
    "update in backward": "uses each gradient at once, and a region of the whole model returns all of them at its end",
    "loss in chunks": "leaves the loss eager, and a region of the whole model would hold all chunks at once",
}
"""Traits that go with regions by block only, and the reasons."""
_OF_A_PIECE = 4
"""Products of each chunk of a loss: logits, their recomputation in backward, and two gradients."""


class Compile(Optimization):
    """`torch.compile` of every region, as whole graphs."""

    mode: Literal["default", "max-autotune-no-cudagraphs"] = "default"
    """Search effort of the compiler: `max-autotune-no-cudagraphs` times several kernels for each product."""
    regions: Literal["blocks", "model"] = "blocks"
    """Parts that are compiled each for itself: the embedding, each block and the head, or the whole `model`."""

    title: ClassVar = "compilation (torch.compile)"
    stage: ClassVar = Stage.COMPILE
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "time: element-wise chains neither write nor read intermediates, and fewer operators are called"
    pays: ClassVar = "compilation in the first step and the first evaluation; memory may grow or shrink"
    sources: ClassVar = ("doi:10.1145/3620665.3640366", "pytorch/pytorch#161889", "pytorch/pytorch#193193")
    claims: ClassVar = frozenset({"compiler"})
    compiles: ClassVar = True

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        if self.regions == "blocks":
            return {}
        return {trait: f"{{other}} {why}; use compile:regions=blocks" for trait, why in _BY_BLOCKS.items()}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        on_gpu = machine.device(run.device) == "cuda"
        if on_gpu and not machine.absent and importlib.util.find_spec("triton") is None:
            raise Unavailable("compile generates Triton kernels on a GPU, and triton is not installed; install triton")
        compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
        if not on_gpu and shutil.which(compiler) is None:
            raise Unavailable(
                f"compile needs a C++ compiler, and {compiler!r} was not found; install g++ or name yours in CXX"
            )
        if run.model.n_expert is not None:
            raise Conflict(
                "compile runs dense models only, because the host reads where a router sends tokens; leave it out"
            )
        if run.ranks > 1:
            raise Conflict("compile is proven on one device only; leave it out of runs over several ranks")

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return super().expect(expected, run).changed(shows_masks=False)

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.rewrites.float8 import FORMAT
        from assay.optimizations.compile.ledger import fuse_modules

        # Compiled code fuses rounding into its loops, without the copies that the tape lists.
        if any(one.products == FORMAT for one in cost.tape):
            raise Unpredicted("compiled float8 layers")
        if self.regions == "model":
            raise Unpredicted("a model that is compiled as one region")
        return fuse_modules(cost, ("embedding", *cost.block_sites, "head"))

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from torch.nn import Identity

        from assay.model import GPT, Block, Embedding, Head
        from assay.step.compiled import Captures

        captures = Captures({"fallback_random": True, **_SETTINGS[self.mode]})
        kinds = (GPT,) if self.regions == "model" else (Embedding, Block, Head)
        for part in program.parts:
            for module in part.modules():
                region = module.region if isinstance(module, Head) else module
                if isinstance(module, kinds) and not isinstance(region, Identity):
                    region.forward = captures.compile(region.forward)
                    captures.regions.add(region)
        return replace(program, witnesses=(*program.witnesses, captures))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        # Only an eager chunked loss calls this operator; compiled code decomposes it.
        pieces = trace.count("aten._log_softmax", phase="forward")
        ends = 1 + (pieces == 0 or run.model.norm_position == "pre")
        regions = 1 if self.regions == "model" else len(trace.blocks) + ends
        wanted = regions * trace.forwards
        forward, backward = trace.graphs.calls(backward=False), trace.graphs.calls(backward=True)
        graphs, breaks = trace.graphs.compiled, trace.graphs.graph_breaks
        outside = trace.contractions() - sum(graph.calls * graph.contractions for graph in graphs)
        operations, kernels = (sum(getattr(one, of) for one in graphs) for of in ("operations", "kernels"))
        observed = (
            f"{len(graphs)} graphs with {operations} operations in {kernels} fused kernels; "
            f"{forward} of {wanted} forward and {backward} of {wanted} backward calls compiled; "
            f"{breaks} graph breaks, {outside} matmuls outside, {pieces} eager chunks of the loss"
        )
        whole = forward == backward == wanted and breaks == 0 and outside == _OF_A_PIECE * pieces
        return self.evidence(observed, whole and 0 < kernels < operations)
