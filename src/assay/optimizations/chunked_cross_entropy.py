"""Compute the loss from one chunk of the logits at a time, so that they never exist whole.

With V tokens in the vocabulary, the logits of n tokens, their log-probabilities and their gradient are n × V numbers
each. At GPT-2's V = 50257 these are most of the memory of a small model. The head projects n/chunks tokens at a time,
adds their loss to the sum and frees their logits. Backward recomputes each chunk's logits (arXiv:2410.10989 computes
gradients in forward instead, and keeps them). In 16 bits the gradient of the projection is rounded once a chunk. Tensor
parallelism computes the loss from columns of the logits, and excludes this technique. The loss stays eager under a
compiler, which would move the recomputation of every chunk into forward and save its results.
"""

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.config.model import EMBEDDING_WEIGHT, HEAD_WEIGHT
from assay.cost.layers import FRESH, INPLACE, NONE, Tape
from assay.cost.operation import Flops, Operation, Scratch, Tensor
from assay.cost.step_cost import Cost
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.hardware import Machine
    from assay.step.program import Program

_HEAD = ("head.projection", "head")


def loss_in_chunks(cost: Cost, chunks: int) -> Cost:
    """The ledger with one operation for the head, which holds the logits of one of `chunks` chunks at a time.

    One operation replaces the projection and the cross-entropy. It saves its inputs. At its peak, in forward as in
    backward, it holds one chunk's logits and their logarithms in float32. The recomputed logits are no FLOPs that the
    model needs. The traffic of the logits is left out, so the predicted time is too short for a head that is narrow
    relative to its vocabulary.
    """
    head = tuple(one for one in cost.tape if one.site in _HEAD)
    before = tuple(one for one in cost.tape if one.site not in _HEAD)
    return replace(cost, tape=(*before, _in_one(cost, head, chunks)))


def _in_one(cost: Cost, head: Tape, chunks: int) -> Operation:
    product, last = head[0], head[-1]
    work = product.flops
    x, weight = (cost.values[name] for name in product.inputs)
    shape = (prod(x.shape[:-1]), weight.shape[0])
    piece = tuple(Tensor(f"head:{label}", shape, wide=True, chunks=chunks) for label in ("logits", "logarithms"))
    numbers = Tensor("head:loss and weight of a chunk", (2,), wide=True, batched=False)
    beside = _beside_derivatives(shape[0], chunks) if any(one.name == "aten.tanh" for one in head) else ()
    return Operation(
        name="aten.cross_entropy_loss",
        site="head",
        kind="contraction",
        inputs=(x.name, weight.name, "targets"),
        outputs=last.outputs,
        gradients=(FRESH, INPLACE, NONE),
        saves=(x.name, weight.name, "targets"),
        holds=(x.name,),
        flops=Flops(work.forward, work.forward + work.backward, work.forward + work.padding),
        backward="_InPiecesBackward",
        scratch=Scratch((*piece, numbers), (*piece, *beside)),
        opaque=True,
    )


def _beside_derivatives(rows: int, chunks: int) -> tuple[Tensor, ...]:
    """Temporaries of a chunk's targets, which backward has beside the derivatives of a cap.

    They are the targets, whether they count, two probabilities of each, and three numbers.
    """
    kinds = {"targets": "int64", "counted": "bool", "probabilities": "float32", "less one": "float32"}
    made = (Tensor(f"head:{label}", (rows,), dtype, wide=True, chunks=chunks) for label, dtype in kinds.items())
    return (*made, Tensor("head:numbers of a chunk", (3,), wide=True, batched=False))


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

    def predict(self, cost: Cost, run: ResolvedRun, machine: "Machine") -> Cost:
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
    from assay.proofs.sharding import chunk

    weights = {one.name: one for one in trace.parameters}
    head = weights.get(HEAD_WEIGHT) or weights[EMBEDDING_WEIGHT]
    split = "tp" in head.dimensions
    columns = chunk(head.whole_shape[0], trace.ranks["tp"], trace.place["tp"]) if split else head.whole_shape[0]
    made = [one for one in trace.operations if one.name == "aten._log_softmax" and one.phase == "forward"]
    return sum(one.bytes / (2 * columns * DTYPE_BYTES[one.dtype]) for one in made)
