"""Cross-entropy in pieces, wrong."""

from assay.model.loss import cross_entropy
from optimizations.mutations.mutant import Mutant, replaced, rewritten, together

_FORWARD, _BACKWARD = "assay.model.loss:_InPieces.forward", "assay.model.loss:_InPieces.backward"
_ADDED = 'loss += F.cross_entropy(logits, wanted, ignore_index=NOT_COUNTED, reduction="sum")'
_MEAN = "F.cross_entropy(logits, wanted, ignore_index=NOT_COUNTED)"
_PIECES, _BACK = (
    "zip(x.tensor_split(chunks), targets.tensor_split(chunks), strict=True)",
    ("zip(*(one.tensor_split(ctx.chunks) for one in (x, targets, by_x)), strict=True)"),
)

MUTANTS = (
    Mutant(
        "last piece forgotten",
        "The last piece has no part in the loss nor in its gradients.",
        together(
            rewritten(_FORWARD, (_PIECES, f"list({_PIECES})[:-1]")),
            rewritten(_BACKWARD, (_BACK, f"list({_BACK})[:-1]"), ("torch.empty_like(x)", "torch.zeros_like(x)")),
        ),
    ),
    Mutant(
        "last piece without gradients",
        "The last piece is in the loss, and has no gradients.",
        rewritten(_BACKWARD, (_BACK, f"list({_BACK})[:-1]"), ("torch.empty_like(x)", "torch.zeros_like(x)")),
    ),
    Mutant(
        "weight of one piece",
        "The weight's gradient is that of the last piece alone.",
        rewritten(_BACKWARD, ("by_weight.addmm_(by_logits.t(), rows)", "by_weight = by_logits.t() @ rows")),
    ),
    Mutant(
        "mean of means",
        "Pieces of unlike length count alike.",
        rewritten(_FORWARD, (_ADDED, f"loss += {_MEAN} * (len(x) / chunks)")),
        {"stack": "chunked_cross_entropy:chunks=7"},
    ),
    Mutant(
        "divided twice",
        "Gradients are divided by the number of pieces.",
        rewritten(_BACKWARD, ("wanted, gradient)", "wanted, gradient / ctx.chunks)")),
    ),
    Mutant(
        "sum in 16 bits",
        "Losses of pieces are added up in bfloat16.",
        rewritten(_FORWARD, ("dtype=_wide(x.dtype)", "dtype=x.dtype")),
        {"stack": "chunked_cross_entropy+bf16_mixed"},
    ),
    Mutant(
        "one piece",
        "All logits are there at once.",
        rewritten(
            "assay.optimizations.chunked_cross_entropy:ChunkedCrossEntropy.apply",
            ("InPieces(self.chunks)", "InPieces(1)"),
        ),
    ),
    Mutant(
        "half as many pieces",
        "There are half as many pieces as were asked for.",
        rewritten(
            "assay.optimizations.chunked_cross_entropy:ChunkedCrossEntropy.apply",
            ("InPieces(self.chunks)", "InPieces(self.chunks // 2)"),
        ),
    ),
    Mutant(
        "whole late",
        "Late in the run all logits are there at once.",
        replaced(
            "assay.model.loss:ChunkedCrossEntropy.__call__",
            lambda self, projection, x, targets: cross_entropy(projection, x, targets),
            late=True,
        ),
        late=True,
    ),
)
