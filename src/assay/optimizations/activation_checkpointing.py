"""Save only the input of a block, and recompute the block in backward.

A block that is not checkpointed saves all that its layers need for backward. A checkpointed block saves its input only;
the rest exists for one block at a time (arXiv:1604.06174). Torch's non-reentrant checkpoint stops recomputing at the
last tensor that backward needs, so without dropout the MLP's down projection is never recomputed.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import PositiveInt

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unplanned
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class ActivationCheckpointing(Optimization):
    """Recompute one block out of `every`."""

    every: PositiveInt = 1
    """Checkpoint the first of each `every` consecutive blocks."""

    title: ClassVar = "activation checkpointing"
    stage: ClassVar = Stage.RECOMPUTE
    usual: ClassVar = "the largest saving of memory, for some more time"
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.EXACT
    saves: ClassVar = "saved tensors of blocks: those of one layer at a time, instead of all layers"
    pays: ClassVar = "recomputation of most of the blocks' forward: step FLOPs × 11/9 (weight matmuls, no dropout)"
    sources: ClassVar = ("arXiv:1604.06174", "pytorch/pytorch#81448", "pytorch/pytorch#96866")
    claims: ClassVar = frozenset({"recomputation"})

    def lay_out(self, layout: "Layout") -> "Layout":
        if self.every > 1:
            raise Unplanned(f"activation_checkpointing:every={self.every}")
        return replace(layout, recompute="full")

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.own is None and self.every > run.model.n_layer:
            raise Conflict(
                f"activation_checkpointing:every={self.every} is more than the model's {run.model.n_layer} blocks; "
                f"choose every between 1 and {run.model.n_layer}"
            )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        return cost.recomputing(cost.block_sites[:: self.every], noise=run.model.dropout > 0)

    def check_program(self, program: "Program", run: ResolvedRun) -> None:
        from assay.model.blocks import blocks_of

        if (there := len(blocks_of(program.parts))) < self.every:
            raise Conflict(
                f"{run.model.own} has {there} blocks in a ModuleList or Sequential of modules of one class, and "
                f"activation_checkpointing needs {self.every}; name them in assay.OwnModel(model, blocks=[…])"
            )

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.model.blocks import blocks_of
        from assay.step.recomputed import repeat_in_backward

        self.check_program(program, run)
        blocks = list(blocks_of(program.parts))
        # Dropout must draw the same masks in the recomputation; without dropout, saving the RNG state is wasted.
        noisy = run.model.dropout > 0 or run.model.own is not None
        again = {"use_reentrant": False, "preserve_rng_state": noisy}
        repeat_in_backward(blocks[:: self.every], again)
        return program

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.dropout import unequal_again

        own = tuple(one.block for one in trace.block_forwards)
        chosen = (own if run.model.own is not None else trace.blocks)[:: self.every]
        forwards = [one for one in trace.block_forwards if one.block in chosen]
        matmuls, flops = sum(one.contractions for one in forwards), sum(one.flops for one in forwards)
        again, repeated = trace.contractions(phase="recompute"), trace.flops("recompute")
        stopped = (
            matmuls - sum(one.last_contractions for one in forwards),
            flops - sum(one.last_flops for one in forwards),
        )
        whole = again > 0 and (again, repeated) in (stopped, (matmuls, flops))
        if trace.graphs.compiled:
            # Compiled code saves the results of operators that count as random, as fused attention does.
            whole = stopped[0] < 2 * again <= 2 * matmuls and again % (len(forwards) * trace.forwards) == 0
        observed = f"{again} matmuls of {len(forwards) * trace.forwards} blocks recomputed in backward"
        if not whole:
            observed += f", {repeated} FLOPs; their forwards had {matmuls} matmuls, {flops} FLOPs"
        wrong = unequal_again(trace)
        if others := set(trace.recomputed_blocks) - set(chosen):
            wrong += f", but block {min(others)}, which is not checkpointed, was recomputed, too"
        return self.evidence(observed + wrong, whole and not wrong)
