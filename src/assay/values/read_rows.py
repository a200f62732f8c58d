"""Rows that a run reads in its steps and evaluations, held against the slow rules that determine them.

No row is trained twice by accident. The batch source of a step is wrapped. While it is called, the bytes of its rows
are digested, which takes some nanoseconds a token. After the step, outside of its clock, the slow rule
(`texts_of_step`) makes the rows anew, and the digests must be equal. A stream of documents has no rule that is as
quick. Its step must begin with the token that was the last target of the step before. Rows of a user's own function are
what it returns, and rows that a technique has put on another device are not read.

The slow rule of texts is that of a Philox generator. Its key is the seed, and the step is a high word of its counter.
Its raw words, modulo the number of places where a row can start, are the offsets. A smaller batch has every n-th row.

All windows of a split begin at tokens 0, T, 2T, …; a shorter one at its end holds the rest. Evaluations of the whole
split read all of them. Evaluations of a number of batches read as many full ones, spread evenly, or all whole windows
if they do not fill one batch. The function that evaluates is wrapped, so the rows count that it has taken.

A digest is made of bytes without an operator of torch. An operator would be in the trace of the step, and a copy of
torch's in its peak of memory. A digest depends on the rows and their order, and not on how they are cut into batches.
"""

import ctypes
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from torch import Tensor

from assay.config import ResolvedRun
from assay.data import Prepared
from assay.model.loss import NOT_COUNTED
from assay.optimizations import expected_of
from assay.step.program import MicroBatch, Share, Step
from assay.training.evaluation import Evaluation, Windows


def texts_of_step(step: int, run: ResolvedRun, data: Prepared, divisor: int) -> list[npt.NDArray[np.int64]]:
    """Return the texts of a step's rows: each has one token more than a row."""
    length, rows = run.model.context_length, run.training.batch_size
    words = np.random.Philox(key=run.seed, counter=[0, 0, step, 0]).random_raw(rows)
    starts = [int(word) % (len(data.train) - length) for word in words][::divisor]
    return [np.asarray(data.train.ids[start : start + length + 1]).astype(np.int64) for start in starts]


_TOKEN_BYTES = 8


class RowDigest:
    """Digest of the rows that were added, and their number."""

    def __init__(self) -> None:
        self.rows = 0
        self.held = True
        """False if some rows were on another device, whose bytes are not read."""
        self.first_id = self.last_target = b""
        self._ids, self._targets = (hashlib.blake2b(digest_size=8) for _ in range(2))

    def add(self, ids: Tensor, targets: Tensor) -> None:
        """Add rows `[rows, T]` of a batch."""
        self.rows += len(ids)
        self.held = self.held and ids.device.type == targets.device.type == "cpu"
        if self.held:
            self._add(_bytes_of(ids), _bytes_of(targets))

    def add_text(self, ids: bytes, targets: bytes) -> None:
        """Add the bytes of one row, from a slow reference."""
        self.rows += 1
        self._add(ids, targets)

    def _add(self, ids: bytes, targets: bytes) -> None:
        """Add the bytes of whole rows."""
        self.first_id = self.first_id or ids[:_TOKEN_BYTES]
        self.last_target = targets[-_TOKEN_BYTES:]
        self._ids.update(ids)
        self._targets.update(targets)

    @property
    def value(self) -> tuple[bytes, bytes]:
        """Digests of the token ids and of the targets so far."""
        return self._ids.digest(), self._targets.digest()


def _bytes_of(rows: Tensor) -> bytes:
    whole = rows if rows.is_contiguous() else rows.contiguous()
    return ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())


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
