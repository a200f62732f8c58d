"""Batches without a loader: a step's tokens are a pure function of (seed, step).

No state is kept between steps, so a resumed run, another number of ranks or another cut of the batch gets exactly the
same sequences. Offsets are drawn from a Philox generator, with the seed as key and the step as counter: streams of
different steps never overlap. They are uniform with replacement, like nanoGPT's; there are no epochs.

Validation windows lie in the prepared folder instead (`prepared_folder`).
"""

import numpy as np
import numpy.typing as npt

from assay.data.prepared_folder import Batch, Shard, check_length, gather
from assay.errors import UsageError

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
        return gather(self.shard, self.offsets(step)[index::count], self.context_length)
