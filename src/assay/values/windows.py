"""Held-out windows of every evaluation, held against a slow rule that lists them.

All windows of a split begin at tokens 0, T, 2T, …; a shorter one at its end holds the rest. Evaluations of the whole
split read all of them. Evaluations of a number of batches read as many full ones, spread evenly, or all whole windows
if they do not fill one batch. The function that evaluates is wrapped, so the rows count that it has taken.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from assay.config import ResolvedRun
from assay.data import Prepared
from assay.model.loss import NOT_COUNTED
from assay.step.program import MicroBatch, Step
from assay.training.evaluation import Evaluation, Windows
from assay.values.digests import RowDigest


class EvaluatedWindows:
    """Digests of the windows that one rank's evaluations have taken."""

    def __init__(self, run: ResolvedRun, data: Prepared) -> None:
        self._run, self._data = run, data
        self._own = run.own_rows is not None
        self._found = RowDigest()
        self._right: tuple[RowDigest, int] | None = None
        self.held = 0
        """Number of evaluations that were held against the rule."""

    def watched(self, step: Step) -> Step:
        """Return the step with an evaluation whose windows are digested as it takes them."""
        inner = step.program.evaluate

        def evaluate(step: Step, batches: Iterable[MicroBatch]) -> tuple[float, float]:
            return inner(step, self._counted(batches))

        return step if self._own else replace(step, program=replace(step.program, evaluate=evaluate))

    def begun(self, windows: Windows) -> Windows:
        """Return the windows; each call of them begins another evaluation."""

        def begin() -> Iterable[MicroBatch]:
            self._found = RowDigest()
            return windows()

        return begin

    def fault(self, evaluation: Evaluation) -> str:
        """Return a sentence if an evaluation had other windows or targets than the split has; empty if it did not."""
        if self._own:
            return ""
        if self._right is None:
            self._right = self._by_rule()
        right, targets = self._right
        self.held += 1
        said = f"the evaluation after {evaluation.step} steps "
        if self._found.rows != right.rows:
            return f"{said}read {self._found.rows} windows of held-out text instead of {right.rows}"
        if self._found.held and self._found.value != right.value:
            return f"{said}read other windows than the rule of the split gives"
        # A loss of the user's own may count fewer targets than its windows have.
        if evaluation.targets > targets or (evaluation.targets < targets and self._run.model.own is None):
            return f"{said}counted {evaluation.targets} targets, and its windows have {targets}"
        return ""

    def _counted(self, batches: Iterable[MicroBatch]) -> Iterator[MicroBatch]:
        for ids, targets in batches:
            self._found.add(ids, targets)
            yield ids, targets

    def _by_rule(self) -> tuple[RowDigest, int]:
        """Return the digest of the windows, and the number of their targets."""
        length, ids = self._run.model.context_length, self._data.validation.ids
        digest, counted = RowDigest(), 0
        for start, stop in _places(len(ids), length, self._run.training.batch_size, self._run.training.eval_batches):
            text = np.asarray(ids[start : stop + 1]).astype(np.int64)
            lacking = 0 if self._run.model.own is not None else length - (stop - start)
            inputs = np.concatenate([text[:-1], np.zeros(lacking, np.int64)])
            targets = np.concatenate([text[1:], np.full(lacking, NOT_COUNTED, np.int64)])
            digest.add_text(inputs.tobytes(), targets.tobytes())
            counted += stop - start
        return digest, counted


def _places(tokens: int, length: int, batch_size: int, batches: int | None) -> list[tuple[int, int]]:
    """Return the first and the last place of every window, both of which are tokens of the split."""
    whole: list[tuple[int, int]] = []
    while (len(whole) + 1) * length <= tokens - 1:
        whole.append((len(whole) * length, (len(whole) + 1) * length))
    if batches is None:
        end = len(whole) * length
        return [*whole, (end, tokens - 1)] if end < tokens - 1 else whole
    count = min(batches, len(whole) // batch_size) * batch_size or len(whole)
    return [whole[number * len(whole) // count] for number in range(count)]
