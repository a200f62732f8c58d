"""Batches of other processes, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten

_ITEM, _CALL = (
    "assay.optimizations.loader_workers.step:_Steps.__getitem__",
    "assay.optimizations.loader_workers.step:Workers.__call__",
)
_BEGIN, _READ = "assay.optimizations.loader_workers.step:Workers._begin", "self._batches(step, self._share)"
_PAIR = "(ids.numpy(), targets.numpy())"
_OVER_RANKS = {"stack": "loader_workers+data_parallel"}
_OTHERS = """num_workers=self._workers,
            prefetch_factor=self._ahead,
            persistent_workers=True,"""

MUTANTS = (
    Mutant(
        "the batch before",
        "Each step is handed the batch of the step before.",
        rewritten(_ITEM, (_READ, "self._batches(max(step - 1, 0), self._share)")),
    ),
    Mutant(
        "stands still",
        "Every step trains on the first batch.",
        rewritten(_ITEM, (_READ, "self._batches(0, self._share)")),
    ),
    Mutant(
        "both make the same",
        "Both workers make the same batches, so each is trained on twice.",
        rewritten(_ITEM, (_READ, "self._batches(step // worker.num_workers, self._share)")),
    ),
    Mutant(
        "targets not shifted",
        "The targets are the inputs themselves.",
        rewritten(_ITEM, (_PAIR, "(ids.numpy(), ids.numpy())")),
    ),
    Mutant(
        "shifted twice",
        "The targets are two tokens ahead, and wrap around at the end.",
        rewritten(_ITEM, (_PAIR, "(ids.numpy(), targets.roll(-1, 1).numpy())")),
    ),
    Mutant(
        "one row repeated",
        "The last row of a batch is its first one again.",
        rewritten(
            _ITEM, (_PAIR, "(ids[[*range(len(ids) - 1), 0]].numpy(), targets[[*range(len(ids) - 1), 0]].numpy())")
        ),
    ),
    Mutant(
        "one begins late",
        "The first batch of the workers is left out.",
        rewritten(_BEGIN, ("self._steps.next = step\n", "self._steps.next = step + 1\n")),
    ),
    Mutant(
        "no workers",
        "The run's own process makes the batches.",
        rewritten(
            _BEGIN,
            (
                _OTHERS,
                "num_workers=0,",
            ),
            ('            multiprocessing_context="fork",\n', ""),
        ),
    ),
    Mutant(
        "one worker",
        "One process makes the batches where two were asked for.",
        rewritten(_BEGIN, ("num_workers=self._workers", "num_workers=1")),
    ),
    Mutant(
        "ranks alike",
        "Both ranks train on the first rank's rows.",
        rewritten(_BEGIN, ("_Steps(self._inner, share)", "_Steps(self._inner, (0, share[1]))")),
        _OVER_RANKS,
    ),
    Mutant(
        "stands still late",
        "Late in the run every step trains on one and the same batch.",
        rewritten(
            _CALL, ("    return rows", "    self.kept = getattr(self, 'kept', rows)\n    return self.kept"), late=True
        ),
        late=True,
    ),
)
