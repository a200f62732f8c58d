"""Compute the loss from one chunk of the logits at a time, so that they never exist whole.

With V tokens in the vocabulary, the logits of n tokens, their log-probabilities and their gradient are n × V numbers
each. At GPT-2's V = 50257 these are most of the memory of a small model. The head projects n/chunks tokens at a time,
adds their loss to the sum and frees their logits. Backward recomputes each chunk's logits (arXiv:2410.10989 computes
gradients in forward instead, and keeps them). In 16 bits the gradient of the projection is rounded once a chunk. Tensor
parallelism computes the loss from columns of the logits, and excludes this technique. The loss stays eager under a
compiler, which would move the recomputation of every chunk into forward and save its results.
"""

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.optimizations.base import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


class ChunkedCrossEntropy(Optimization):
    """Projection to the vocabulary and cross-entropy in chunks of rows."""

    chunks: Annotated[int, Field(ge=2)] = 8
    """Chunks into which the tokens of a micro-batch are cut."""

    title: ClassVar = "chunked cross-entropy"
    stage: ClassVar = Stage.KERNEL
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "the logits and their log-probabilities: 1/chunks of them at a time, none saved for backward"
    pays: ClassVar = "recomputation of the projection to the vocabulary: 4 products instead of 3"
    sources: ClassVar = ("arXiv:2410.10989", "arXiv:2411.09009")
    claims: ClassVar = frozenset({"loss"})
    traits: ClassVar = frozenset({"loss in chunks"})

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        tokens = run.tokens_per_step
        if self.chunks > tokens:
            raise Conflict(
                f"chunked_cross_entropy:chunks={self.chunks} is more than the step's {tokens} tokens; "
                f"choose at most {tokens}"
            )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.optimizations.chunked_cross_entropy.ledger import loss_in_chunks

        return loss_in_chunks(cost, self.chunks)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.model import ChunkedCrossEntropy as InPieces
        from assay.model import Head

        for part in program.parts:
            for module in part.modules():
                if isinstance(module, Head):
                    module.cross_entropy = InPieces(self.chunks)
        return program

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        # Only the loss calls this operator, so its calls show which logits existed.
        made = [one for one in trace.operations if one.name == "aten._log_softmax"]
        pieces = {phase: trace.count("aten._log_softmax", phase=phase) for phase in ("forward", "backward")}
        if run.model.n_layer - 1 not in trace.blocks:
            return self.evidence(f"{sum(pieces.values())} chunks of logits: another rank computes the loss", not made)
        wanted = self.chunks * trace.forwards
        # Each call reads the logits and writes as many log-probabilities.
        whole = sum(one.bytes for one in made if one.phase == "forward") // (2 * trace.forwards)
        largest = max((one.largest_bytes for one in made), default=0)
        observed = (
            f"{pieces['forward']} chunks of logits in forward and {pieces['backward']} in backward; "
            f"the largest takes {largest} bytes, all of one forward {whole}"
        )
        # A micro-batch with fewer tokens than chunks leaves some chunks empty.
        filled = min(self.chunks, trace.batch.sequences * run.model.context_length // trace.forwards)
        # The chunks' rows together must be the positions of this rank, each exactly once.
        positions = trace.batch.sequences * run.model.context_length // trace.ranks.get("cp", 1)
        rows = _rows(trace)
        if rows != positions:
            observed += f"; the chunks have {rows} rows, and the batch has {positions}"
        in_pieces = (
            rows == positions and pieces == {"forward": wanted, "backward": wanted} and largest * filled < 2 * whole
        )
        return self.evidence(observed, in_pieces)


def _rows(trace: Trace) -> float:
    """Rows of logits in forward, from the bytes of the log-softmax calls.

    Each row is read once and written once; it has a column for every token of this rank's part of the head.
    """
    from assay.cost import DTYPE_BYTES
    from assay.proofs.shares import chunk

    weights = {one.name: one for one in trace.parameters}
    head = weights.get("head.projection.weight") or weights["embedding.token.weight"]
    split = "tp" in head.dimensions
    columns = chunk(head.whole_shape[0], trace.ranks["tp"], trace.place["tp"]) if split else head.whole_shape[0]
    made = [one for one in trace.operations if one.name == "aten._log_softmax" and one.phase == "forward"]
    return sum(one.bytes / (2 * columns * DTYPE_BYTES[one.dtype]) for one in made)
