"""Keep attention within documents: a token of a packed row sees no token of another document in it.

Rows stay packed at full length, so each token counts, and none is padding. Without the mask, the beginning of a
document is predicted from the unrelated end of the one before it. Llama 3 masked so (arXiv:2407.21783, section 3.2),
and found little effect in standard pre-training, but an important one on very long sequences. It does not say where
positions begin. Here they go on over the row, as without the mask: with rotary positions only distances count, so that
is the same as beginning anew.

A document ends with a token that the text has, `end`. The text of a prepared corpus has no other boundary: documents
are joined by a line break. With `byte` the default is that line break, so that each line is a document. With `gpt2` it
is `<|endoftext|>`, which stands in some published texts. The proof fails for a step in whose batch no document ends.

The mask is dense: B · T² bytes, made once in each forward pass. Fused kernels skip tiles of a mask, which saves time;
this one writes all scores and saves nothing. Evaluations are masked as well, so losses with and without it measure
different tasks. A sample is written without the mask.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import ENDED, Trace
from assay.reference.expected import REASSOCIATED, Expected

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


_ENDS = {"byte": 10, "gpt2": 50256}
"""Token that ends a document, by tokenizer: a line break, and `<|endoftext|>`."""


class DocumentMasking(Optimization):
    """Attention that does not cross the boundaries of documents in a packed row."""

    end: Annotated[int, Field(ge=0)] | None = None
    """Token id that ends a document. None: the line break of `byte`, and `<|endoftext|>` of `gpt2`."""

    title: ClassVar = "attention within documents"
    stage: ClassVar = Stage.KERNEL
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "nothing; no token attends to an unrelated document"
    pays: ClassVar = "a mask of B · T² bytes, and its making in each forward pass"
    sources: ClassVar = ("arXiv:2407.21783",)
    claims: ClassVar = frozenset({"attention mask"})

    def excludes(self, run: ResolvedRun) -> dict[str, str]:
        why = "document_masking needs the hand-coded attention, and {other} replaces it; leave one of them out"
        steady = (
            "document_masking makes a mask anew for each batch, which {other} does not follow; leave one of them out"
        )
        return {
            "attention core": why,
            **dict.fromkeys(("compiler", "recorded graphs", "copies of what is kept"), steady),
        }

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.own is not None:
            raise Conflict(
                "document_masking knows the attention of assay's GPT only; leave it out for a model of yours"
            )
        if run.ranks > 1:
            raise Conflict("document_masking runs on one device only; leave it out, or set ranks=1")
        if run.model.n_expert is not None:
            raise Conflict("document_masking has no reference for a mixture, whose experts are balanced over a batch")
        if self.end is None and run.data.tokenizer not in _ENDS:
            raise Conflict(
                f"this text has no token that is known to end a document; with data.tokenizer={run.data.tokenizer} set "
                "document_masking:end=ID, or use data.tokenizer=byte, where a line break ends one"
            )
        tokens = run.model.vocab_size  # None until the corpus is prepared; then the check runs once more
        if tokens is not None and self._end(run) >= tokens:
            raise Conflict(f"document_masking:end={self._end(run)} is no token of a vocabulary of {tokens}")

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.operation import Operation, Tensor

        (causal,) = (one for one in cost.tables if one.name == "mask")
        documents = Tensor("documents", (cost.batch.tensors[0].shape[0], *causal.shape), "bool")

        def masked(operation: Operation) -> Operation:
            inputs, saves = (
                tuple(documents.name if name == causal.name else name for name in names)
                for names in (operation.inputs, operation.saves)
            )
            return replace(operation, inputs=inputs, saves=saves)

        return replace(cost, tape=tuple(map(masked, cost.tape)), tables=(*cost.tables, documents))

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.step.document_mask import DocumentMask, attend_within_documents

        mask = DocumentMask(self._end(run), run.model.context_length)
        attend_within_documents(program.parts[0], run.model, mask)
        return replace(program, witnesses=(*program.witnesses, mask))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        # A document by itself draws other dropout masks than a row.
        stated = expected.changed(document_end=self._end(run), same_noise=False)
        return stated.loosened(gradients=REASSOCIATED, updates=REASSOCIATED)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        found = [one for one in trace.operations if one.phase == "forward" and "masked_fill" in one.name]
        calls = sum(one.count for one in found)
        # A masked fill reads scores and a mask, and writes as much as it reads of scores.
        masks = sum(one.bytes - 2 * one.count * one.largest_bytes for one in found)
        squares = run.tokens_per_step * run.model.context_length * len(trace.blocks)
        ended = trace.batch.prepared.get(ENDED, 0)
        observed = f"masks of {masks} of {squares} bytes in {calls} calls of attention; documents end in {ended} of "
        observed += f"{trace.batch.sequences} sequences"
        return self.evidence(observed, masks == squares and calls == len(trace.blocks) * trace.forwards and ended > 0)

    def _end(self, run: ResolvedRun) -> int:
        return _ENDS[run.data.tokenizer] if self.end is None else self.end
