"""Attention within documents, wrong."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.config import Run
from assay.model.attention import future
from assay.model.gpt import Embedding
from assay.step.document_mask import DocumentAttention
from assay.step.program import Program
from optimizations.mutations.mutant import LAST, Mutant, applied, rewritten

_MASK = "assay.step.document_mask:DocumentMask.read"
_CORE = "assay.step.document_mask:DocumentAttention.blocked"
_NE = "torch.ne(document[:, None, :, None], document[:, None, None, :], out=self.blocked)"
_CAUSAL = "super(DocumentAttention, self).blocked(q)"
_ONE_HEAD = (
    "mask = mask.expand(-1, q.size(1), -1, -1).clone()\n    mask[:, 0].diagonal(-1, 1, 2).fill_(False)\n    return mask"
)
_LAST_ROW = f"return torch.cat((mask[:-1], {_CAUSAL}.expand_as(mask[:1])))"
_IF_TRAINING = f"return mask if self.training else {_CAUSAL}"
_DOCUMENT = "ends.cumsum(1) - ends.long()"


def _finite(program: Program, run: Run) -> Program:
    for core in (one for part in program.parts for one in part.modules() if isinstance(one, DocumentAttention)):
        core.forward = partial(_with_finite_scores, core)  # type: ignore[method-assign]
    return program


def _with_finite_scores(core: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * q.size(-1) ** -0.5
    later = future(core.context_length, q.device)
    scores = (scores - 10.0 * core.blocked(q)).masked_fill(later, float("-inf"))
    return scores.softmax(dim=-1) @ v


def _positions_anew(program: Program, run: Run) -> Program:
    for embedding in (one for part in program.parts for one in part.modules() if isinstance(one, Embedding)):
        embedding.forward = partial(_embedded_anew, embedding)  # type: ignore[method-assign]
    return program


def _embedded_anew(embedding: Any, ids: Tensor) -> Tensor:
    places = torch.arange(ids.size(1)).expand_as(ids)
    starts = torch.where((ids == 10).roll(1, 1), places, 0)
    return embedding.token(ids) + embedding.position(places - starts.cummax(1).values)


MUTANTS = (
    Mutant(
        "end in the next",
        "The token that ends a document counts as the first of the next one.",
        rewritten(_MASK, (_DOCUMENT, "ends.cumsum(1)")),
    ),
    Mutant(
        "causal only",
        "All documents of a row have one number, so the mask is only causal.",
        rewritten(_MASK, (_DOCUMENT, "torch.zeros_like(ids)"), torch=torch),
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
        rewritten(_CORE, ("return mask", "return torch.ones_like(mask).triu(1)"), torch=torch, late=True),
        late=True,
    ),
    Mutant(
        "unmasked late",
        "After some steps rows share one causal mask.",
        rewritten(_CORE, ("return mask", "return super(DocumentAttention, self).blocked(q)"), late=True),
        late=True,
    ),
    Mutant(
        "one document more",
        "A token sees the document before its own as well.",
        rewritten(_MASK, (_NE, "self.blocked.copy_((document[:, None, :, None] - document[:, None, None, :]) > 1)")),
    ),
    Mutant(
        "evaluated without",
        "Evaluations have a causal mask.",
        rewritten(_CORE, ("return mask", _IF_TRAINING)),
        late=True,
    ),
    Mutant(
        "leak at the border in one head",
        "In the first head the first token of a document sees the last one of the document before.",
        rewritten(_CORE, ("return mask", _ONE_HEAD)),
    ),
    Mutant(
        "finite",
        "Scores of other documents are smaller by ten, and not minus infinity.",
        applied("document_masking", _finite),
    ),
    Mutant(
        "positions begin anew",
        "Positions begin anew in each document.",
        applied("document_masking", _positions_anew),
    ),
    Mutant(
        "leak in the last row late",
        "From step 7 on the last row's mask is only causal.",
        rewritten(_CORE, ("return mask", _LAST_ROW), late=True, since=LAST, torch=torch),
        late=True,
    ),
)
