"""Round the vocabulary up, so that the last matrix product has a size that suits the hardware.

GPT-2's 50257 is odd; 50304 is a multiple of 64, and on tensor cores the padded product is faster (nanoGPT). The added
rows stand for no token. Their logits are −∞, so their probability and all their gradients are exactly 0, and they stay
zero as initialized. Checkpoints leave them out. The model has a few more rows, and on a CPU the technique need not gain
anything. Over ranks, where checkpoints are written in shards, it is refused.
"""

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.config.model import EMBEDDING_WEIGHT, HEAD_WEIGHT
from assay.cost.operation import Flops, Gradient, Operation, Tensor
from assay.cost.step_cost import Cost
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from assay.hardware import Machine
    from assay.step.program import Program

PADDED = (EMBEDDING_WEIGHT, HEAD_WEIGHT)
"""Weights that have a row for each token."""


def pad_ledger(cost: Cost, tokens: int, rows: int) -> Cost:
    """The ledger with `rows` rows of the vocabulary in place of its `tokens`.

    The embedding has more rows, the logits have more columns, and a bias masks these.
    """
    barred = Tensor("barred", (rows,), batched=False)

    def widened(named: dict[str, Tensor]) -> dict[str, Tensor]:
        return {n: replace(t, shape=(rows, *t.shape[1:])) if n in PADDED else t for n, t in named.items()}

    def wide(tensor: Tensor) -> Tensor:
        return replace(tensor, shape=(*tensor.shape[:-1], rows)) if tensor.shape[-1:] == (tokens,) else tensor

    def rewritten(operation: Operation) -> Operation:
        if operation.site == "head":
            return replace(operation, outputs=tuple(map(wide, operation.outputs)))
        if operation.site != "head.projection":
            return operation
        x, weight = (cost.values[name] for name in operation.inputs)
        product = 2 * prod(x.shape[:-1]) * rows * weight.shape[-1]
        return replace(
            operation,
            name="aten.addmm",
            inputs=(*operation.inputs, barred.name),
            gradients=(*operation.gradients, Gradient.NONE),
            outputs=tuple(map(wide, operation.outputs)),
            flops=Flops(product, 2 * product, 3 * product * (rows - tokens) // rows),
            backward="AddmmBackward",
        )

    tape = tuple(map(rewritten, cost.tape))
    changed = replace(cost, tape=tape, parameters=widened(cost.parameters), tables=(*cost.tables, barred))
    return changed.holding(widened(cost.pieces))


class VocabPadding(Optimization):
    """Embedding rows and logits padded to a multiple of `multiple`."""

    multiple: Annotated[int, Field(ge=2, le=4096)] = 64
    """Divisor of the padded vocabulary, at most 4096: no kernel has wider tiles."""

    title: ClassVar = "vocabulary padding"
    stage: ClassVar = Stage.MODEL
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "time of the projection to the vocabulary, where kernels are tiled"
    pays: ClassVar = "weights, gradients, state, logits and FLOPs of rows that stand for no token"
    sources: ClassVar = ("karpathy/nanoGPT", "NVIDIA, Matrix Multiplication Background User's Guide")
    claims: ClassVar = frozenset({"loss"})
    traits: ClassVar = frozenset({"rows of no token"})

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        size = run.model.vocab_size  # None until the corpus is prepared; then the check runs once more
        if size is not None and size % self.multiple == 0:
            raise Conflict(
                f"vocab_padding:multiple={self.multiple} divides the vocabulary of {size} already; "
                "choose another multiple or leave it out"
            )
        if run.model.logit_softcap is not None:
            raise Conflict(
                "vocab_padding sets logits of its rows to −∞, and model.logit_softcap would make them numbers; "
                "set model.vocab_size to the padded size instead"
            )
        if run.ranks > 1:
            raise Conflict(
                "vocab_padding runs on one device only; with several ranks set model.vocab_size to the padded size"
            )

    def predict(self, cost: Cost, run: ResolvedRun, machine: "Machine") -> Cost:
        return pad_ledger(cost, run.model.vocabulary, self._rows(run))

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizations.vocab_padding.padded_model import pad_vocabulary, zero_padding

        tokens = run.model.vocabulary
        for part in program.parts:
            pad_vocabulary(part, tokens, self._rows(run))
        initialize = zero_padding(program.weights.initialize, tokens)
        at_rest = dict.fromkeys(PADDED, tokens)
        return replace(program, weights=replace(program.weights, initialize=initialize, rows_at_rest=at_rest))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.cost import DTYPE_BYTES

        # Log-probabilities have one row a token.
        tokens = run.tokens_per_step // trace.forwards
        columns = trace.largest_bytes("aten._log_softmax", phase="forward") // (_number_bytes(trace) * tokens)
        tokens_known, width = run.model.vocabulary, run.model.n_embd
        padded = columns % self.multiple == 0 and tokens_known <= columns < tokens_known + self.multiple
        # Weights may be kept in 16 bits.
        numbers = {one.name: one.whole_bytes // DTYPE_BYTES[one.dtype] for one in trace.parameters}
        rows = sorted({numbers[name] // width for name in PADDED if name in numbers})
        observed = f"logits of {columns} columns and weights of {rows} rows for a vocabulary of {tokens_known}"
        return self.evidence(observed, padded and rows == [columns])

    def _rows(self, run: ResolvedRun) -> int:
        return -(-run.model.vocabulary // self.multiple) * self.multiple


def _number_bytes(trace: Trace) -> int:
    """Return the bytes of a log-probability: float32, but CUDA's autocast leaves those of a cross-entropy in 16 bits.

    In compiled code they are float32, whatever the parts of a decomposed softmax read.
    """
    whole = [one for one in trace.operations if one.name == "aten._log_softmax" and one.phase == "forward"]
    narrow = whole and all(one.dtype in ("bfloat16", "float16") for one in whole)
    return 2 if narrow else 4
