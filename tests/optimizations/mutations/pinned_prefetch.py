"""Batches that are fetched ahead, wrong."""

from optimizations.mutations.mutant import Mutant, replaced, rewritten

_NEXT, _COPY = (
    "assay.optimizations.pinned_prefetch.step:Prefetch.fetch_next",
    "assay.optimizations.pinned_prefetch.step:from_pinned_memory",
)
_READ = "self._inner(index + 1, share)"

MUTANTS = (
    Mutant(
        "the batch before",
        "Each step gets the batch of the one before.",
        rewritten(_NEXT, (_READ, "self._inner(index, share)")),
        gpu=True,
    ),
    Mutant(
        "stands still",
        "Every step trains on the second batch.",
        rewritten(_NEXT, (_READ, "self._inner(1, share)")),
        gpu=True,
    ),
    Mutant(
        "skips steps",
        "Every batch is one too late.",
        rewritten(_NEXT, (_READ, "self._inner(index + 2, share)")),
        gpu=True,
    ),
    Mutant("nothing ahead", "No batch is fetched ahead.", replaced(_NEXT, lambda self, step: None), gpu=True),
    Mutant(
        "targets not shifted",
        "The targets are the inputs themselves.",
        rewritten(_COPY, ("return [(ids, targets) for", "return [(ids, ids) for")),
        gpu=True,
    ),
    Mutant(
        "nothing ahead late",
        "Late in the run no batch is fetched ahead.",
        replaced(_NEXT, lambda self, step: None, late=True),
        gpu=True,
        late=True,
    ),
)
