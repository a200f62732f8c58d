"""Batches without a loader: which tokens a step trains on is a pure function of (seed, step).

Nothing is kept between steps, so a resumed run, another number of ranks or another way of cutting the batch sees the
very same sequences. Offsets come from a Philox generator, keyed by the seed, with the step as its counter: streams of
different steps never overlap. They are drawn uniformly with replacement, as nanoGPT draws them; an epoch has no
meaning here.

Validation walks the split in order instead: windows that do not overlap, so that each token is predicted once. The
first tokens of a window have little context, which makes the loss a little higher than a sliding window would give.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from assay.data.shards import Shard, check_length
from assay.errors import UsageError

Batch = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Inputs and targets, [sequences, context_length] each: `targets[:, t]` is the token after `inputs[:, t]`."""

_KEY_BITS = 128


class Batches:
    """Training batches of one shard.

    Raises `UsageError` when the shard is too short for one sequence and its targets.
    """

    def __init__(self, shard: Shard, seed: int, batch_size: int, context_length: int) -> None:
        check_length(shard, context_length)
        self.shard = shard
        self.seed = seed
        self.batch_size = batch_size
        self.context_length = context_length

    def offsets(self, step: int) -> npt.NDArray[np.int64]:
        """Where the sequences of a step's whole batch start, [batch_size]; the last token can be a target."""
        starts = len(self.shard) - self.context_length
        # The step is a high word of the counter, so each step has 2^128 draws of its own. Raw words and a remainder,
        # because NumPy keeps the raw stream the same for ever and that of `Generator.integers` not; the bias of the
        # remainder is below 2^-30 for any corpus of less than 2^34 tokens.
        raw = np.random.Philox(key=self.seed % 2**_KEY_BITS, counter=[0, 0, step, 0]).random_raw(self.batch_size)
        return (np.asarray(raw, dtype=np.uint64) % np.uint64(starts)).astype(np.int64)

    def at(self, step: int, share: tuple[int, int] = (0, 1)) -> Batch:
        """The batch of a step, int64; `share=(index, count)` gives every count-th of its rows, from the index-th on.

        So the i-th micro-batches of all shares are together the i-th micro-batch of the whole batch. Raises
        `UsageError` when the batch cannot be shared equally.
        """
        index, count = share
        if count < 1 or not 0 <= index < count:
            raise ValueError(f"there is no share {index} of {count}")
        if self.batch_size % count:
            raise UsageError(f"a batch of {self.batch_size} sequences cannot be cut into {count} equal shares")
        return _gather(self.shard, self.offsets(step)[index::count], self.context_length)


class ValidationWindows:
    """A list of validation batches that is read from disk item by item; iterating or indexing it gives `Batch`es."""

    def __init__(self, shard: Shard, starts: list[npt.NDArray[np.int64]], context_length: int, rest: int) -> None:
        self._shard = shard
        self._starts = starts
        self._context_length = context_length
        self._rest = rest

    @property
    def targets(self) -> int:
        """Tokens that are predicted in all batches together."""
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
    """The same validation batches at every call.

    `batches=None` covers the split: windows at 0, T, 2T, … in batches of up to `batch_size` rows, then one ragged
    window [1, rest], so that every token but the first is a target exactly once. `batches=N` gives N full batches
    whose windows are spread evenly over the split; fewer when it has fewer, one smaller batch when it has not one.
    Raises `UsageError` when the split is too short for one window.
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
