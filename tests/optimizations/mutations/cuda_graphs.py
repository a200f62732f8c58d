"""Recorded steps, wrong."""

from optimizations.mutations.mutant import Mutant, replaced, rewritten

_CLASS = "assay.step.graphs:StepGraphs"
_PLACED, _REPLAYED = f"{_CLASS}._placed", f"{_CLASS}._replayed"
_IN_FOUR = {"stack": "cuda_graphs+gradient_accumulation"}

MUTANTS = (
    Mutant(
        "recorded batch",
        "Every replay trains on the batch that was recorded.",
        rewritten(
            _PLACED, ("        place.copy_(given, non_blocking=True)", "        self._graphs or place.copy_(given)")
        ),
        gpu=True,
    ),
    Mutant(
        "old targets",
        "A replay has new inputs and the recorded targets.",
        rewritten(
            _PLACED,
            (
                "zip(self._inputs, micro_batch, strict=True):\n        place",
                "zip(self._inputs, micro_batch[: 1 if self._graphs else 2]):\n        place",
            ),
        ),
        gpu=True,
    ),
    Mutant(
        "one buffer",
        "The losses of all later micro-batches are the last one's.",
        rewritten(_REPLAYED, ("return graph.loss.clone()", "return graph.loss")),
        _IN_FOUR,
        gpu=True,
    ),
    Mutant(
        "last weight forgotten",
        "The last weight is not given its gradient.",
        rewritten(
            _REPLAYED,
            (
                "zip(step.named_parameters(), self._gradients, strict=True)",
                "list(zip(step.named_parameters(), self._gradients))[:-1]",
            ),
        ),
        gpu=True,
    ),
    Mutant(
        "one replay",
        "Only the first micro-batch of a step is replayed, and counts for all.",
        rewritten(
            f"{_CLASS}.gradients",
            (
                "for index, micro_batch in enumerate(micro_batches)",
                "for index, micro_batch in enumerate(micro_batches[:1] * len(micro_batches))",
            ),
        ),
        _IN_FOUR,
        gpu=True,
    ),
    Mutant(
        "launched late",
        "Late in the run the host launches every kernel.",
        replaced(f"{_CLASS}.gradients", lambda self, step, rows, tokens: self._inner(step, rows, tokens), late=True),
        gpu=True,
        late=True,
    ),
)
