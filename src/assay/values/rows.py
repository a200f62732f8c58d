"""Rows of every step, held against the slow rule that determines them, so that none is trained twice by accident.

The batch source of a step is wrapped. While it is called, the bytes of its rows are digested, which takes some
nanoseconds a token. After the step, outside of its clock, the slow rule (`texts`) makes the rows anew,
and the digests must be equal. A stream of documents has no rule that is as quick. Its step must begin with the token
that was the last target of the step before. Rows of a user's own function are what it returns, and rows that a
technique has put on another device are not read.
"""

from collections.abc import Sequence
from dataclasses import replace

from assay.config import ResolvedRun
from assay.data import Prepared
from assay.optimizations import expected_of
from assay.step.program import MicroBatch, Share, Step
from assay.values.digests import RowDigest
from assay.values.texts import texts_of_step

_REMEMBERED = 1000
"""Steps before a wrong one whose rows are compared with its rows, to say which were trained again."""


class StepRows:
    """Digests of the rows of one rank's steps."""

    def __init__(self, run: ResolvedRun, data: Prepared) -> None:
        expected = expected_of(run)
        self._run, self._data, self._divisor = run, data, expected.batch_divisor
        self._own, self._stream = run.own_rows is not None, expected.stream is not None
        self._taken: dict[int, tuple[Share, RowDigest]] = {}
        self._ended: tuple[int, bytes] | None = None
        """The last step of a stream whose rows were read, and its last target."""
        self.held = 0
        """Number of steps whose rows were held against the rule."""

    def watched(self, step: Step) -> Step:
        """Return the step with a batch source whose rows are digested."""
        inner = step.program.batches

        def batches(index: int, share: Share) -> Sequence[MicroBatch]:
            rows, found = list(inner(index, share)), RowDigest()
            for ids, targets in rows:
                found.add(ids, targets)
            self._taken[index] = share, found
            return rows

        return step if self._own else replace(step, program=replace(step.program, batches=batches))

    def fault(self, index: int) -> str:
        """Return a sentence if a step that was just trained had other rows than its own; empty if it did not."""
        share, found = self._taken.pop(index, ((0, 1), None))
        self._taken = {at: one for at, one in self._taken.items() if at > index}
        if found is None or not found.held:
            return ""
        if self._stream:
            return self._of_stream(index, share, found)
        self.held += 1
        if found.value == self._right(index, share):
            return ""
        before = (at for at in reversed(range(max(0, index - _REMEMBERED), index)))
        twice = next((at for at in before if self._right(at, share) == found.value), None)
        if twice is not None:
            return f"step {index} trained on the rows of step {twice} again"
        return f"the rows of step {index} are not those that seed {self._run.seed} selects"

    def _right(self, index: int, share: Share) -> tuple[bytes, bytes]:
        digest = RowDigest()
        for text in texts_of_step(index, self._run, self._data, self._divisor)[share[0] :: share[1]]:
            digest.add_text(text[:-1].tobytes(), text[1:].tobytes())
        return digest.value

    def _of_stream(self, index: int, share: Share, found: RowDigest) -> str:
        """Hold a step of a stream that this rank reads whole."""
        if share != (0, 1) or self._divisor != 1:
            return ""
        before, self._ended = self._ended, (index, found.last_target)
        if before is None or before[0] != index - 1:
            return ""
        self.held += 1
        if found.first_id == before[1]:
            return ""
        return f"the rows of step {index} do not begin where those of step {index - 1} ended"
