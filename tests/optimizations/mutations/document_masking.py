"""Attention within documents, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten

_MASK = "assay.step.document_mask:DocumentMask.read"
_CORE = "assay.step.document_mask:DocumentAttention.blocked"
_DOCUMENT = "ends.cumsum(1) - ends.long()"

MUTANTS = (
    Mutant(
        "end in the next",
        "The token that ends a document counts as the first of the next one.",
        rewritten(_MASK, (_DOCUMENT, "ends.cumsum(1)")),
    ),
    Mutant(
        "causal only",
        "All documents of a row have one number, so the mask is only causal.",
        rewritten(_MASK, (_DOCUMENT, "torch.zeros_like(ids)"), torch=__import__("torch")),
    ),
    Mutant(
        "another token",
        "Documents end with the token after the one that was named.",
        rewritten(_MASK, ("ids == self.end", "ids == self.end + 1")),
    ),
    Mutant(
        "parity",
        "Documents are numbered by two, so a token sees the one before the last.",
        rewritten(_MASK, (_DOCUMENT, f"({_DOCUMENT}) % 2")),
    ),
    Mutant(
        "of the first row",
        "All rows of a batch have the documents of its first row.",
        rewritten(_MASK, ("ends = ids == self.end", "ends = (ids[:1] == self.end).expand_as(ids)")),
    ),
    Mutant(
        "sees the future",
        "A token sees later tokens of its document.",
        rewritten(
            _MASK, ("self.blocked.logical_or_(future(self.context_length, ids.device)[:length, :length])", "pass")
        ),
    ),
    Mutant(
        "of the first batch",
        "The mask of the first batch is kept for all others.",
        rewritten(_MASK, ("(ids,) = given", "(ids,) = self.given = getattr(self, 'given', given)")),
    ),
    Mutant(
        "causal late",
        "After some steps the mask is only causal.",
        rewritten(_CORE, ("return mask", "return torch.ones_like(mask).triu(1)"), torch=__import__("torch"), late=True),
        late=True,
    ),
    Mutant(
        "unmasked late",
        "After some steps rows share one causal mask.",
        rewritten(_CORE, ("return mask", "return super(DocumentAttention, self).blocked(q)"), late=True),
        late=True,
    ),
)
