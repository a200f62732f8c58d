"""Batches without a loader: a step's tokens are a pure function of (seed, step).

No state is kept between steps, so a resumed run, another number of ranks or another cut of the batch gets exactly the
same sequences. Offsets are drawn from a Philox generator, with the seed as key and the step as counter: streams of
different steps never overlap. They are uniform with replacement, like nanoGPT's; there are no epochs.

Validation reads the split in order instead, in windows that do not overlap, so each token is predicted once. The first
tokens of a window have little context, so the loss is slightly higher than with a sliding window.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from assay.data.prepared_folder import Shard, check_length
from assay.errors import UsageError

Batch = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Inputs and targets, int64, `[sequences, context_length]`: `targets[:, t]` is the token after `inputs[:, t]`."""

_KEY_BITS = 128


class Batches:
    """Training batches of one shard.

    Raises `UsageError` if the shard is too short for one sequence and its targets.
    """

    def __init__(self, shard: Shard, seed: int, batch_size: int, context_length: int) -> None:
        check_length(shard, context_length)
        self.shard = shard
        self.seed = seed
        self.batch_size = batch_size
        self.context_length = context_length

    def offsets(self, step: int) -> npt.NDArray[np.int64]:
        """Return the start positions of a step's sequences, `[batch_size]`, int64; the last token can be a target."""
        starts = len(self.shard) - self.context_length
        # The step is a high word of the counter, so each step has 2^128 draws of its own. Raw words and a remainder
        # are used, because NumPy guarantees the raw stream, but not that of `Generator.integers`. The bias of the
        # remainder is below 2^-30 for any corpus of less than 2^34 tokens.
        raw = np.random.Philox(key=self.seed % 2**_KEY_BITS, counter=[0, 0, step, 0]).random_raw(self.batch_size)
        return (np.asarray(raw, dtype=np.uint64) % np.uint64(starts)).astype(np.int64)

    def at(self, step: int, share: tuple[int, int] = (0, 1)) -> Batch:
        """Return the batch of a step; `share=(index, count)` selects every count-th row, from the index-th on.

        The i-th micro-batches of all shares together are thus the i-th micro-batch of the whole batch. Raises
        `UsageError` if the batch cannot be divided equally.
        """
        index, count = share
        if count < 1 or not 0 <= index < count:
            raise ValueError(f"there is no share {index} of {count}")
        if self.batch_size % count:
            raise UsageError(f"a batch of {self.batch_size} sequences cannot be cut into {count} equal shares")
        return _gather(self.shard, self.offsets(step)[index::count], self.context_length)


class ValidationWindows:
    """A sequence of validation `Batch`es, each read from disk when it is indexed or iterated over."""

    def __init__(self, shard: Shard, starts: list[npt.NDArray[np.int64]], context_length: int, rest: int) -> None:
        self._shard = shard
        self._starts = starts
        self._context_length = context_length
        self._rest = rest

    @property
    def targets(self) -> int:
        """Return the number of tokens that all batches together predict."""
        return sum(len(starts) for starts in self._starts) * self._context_length + self._rest

    def __len__(self) -> int:
        return len(self._starts) + bool(self._rest)

    def __getitem__(self, index: int) -> Batch:
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        if position < len(self._starts):
            return _gather(self._shard, self._starts[position], self._context_length)
        return _gather(self._shard, np.array([len(self._shard) - 1 - self._rest]), self._rest)

    def __iter__(self) -> Iterator[Batch]:
        return (self[index] for index in range(len(self)))


def validation_windows(
    shard: Shard, context_length: int, batch_size: int, batches: int | None = None
) -> ValidationWindows:
    """Return the validation batches, the same at every call.

    `batches=None` covers the split: windows at 0, T, 2T, … in batches of up to `batch_size` rows, then one shorter
    window `[1, rest]`. Every token but the first is then a target exactly once. `batches=N` gives N full batches, with
    windows spread evenly over the split. A short split gives fewer, or a single smaller batch.
    Raises `UsageError` if the split is too short for one window.
    """
    check_length(shard, context_length)
    windows, rest = divmod(len(shard) - 1, context_length)
    if batches is None:
        chosen = np.arange(windows, dtype=np.int64)
    else:
        rest = 0
        count = min(batches * batch_size, windows // batch_size * batch_size) or windows
        chosen = np.arange(count, dtype=np.int64) * windows // count
    parts = math.ceil(len(chosen) / batch_size)
    starts = [chosen[part * batch_size : (part + 1) * batch_size] * context_length for part in range(parts)]
    return ValidationWindows(shard, starts, context_length, rest)


def _gather(shard: Shard, offsets: npt.NDArray[np.int64], length: int) -> Batch:
    block = shard.ids[offsets[:, None] + np.arange(length + 1)]
    return block[:, :-1].astype(np.int64, order="C"), block[:, 1:].astype(np.int64, order="C")
