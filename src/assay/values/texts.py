"""Texts of the rows of a step, by a slow rule: the offsets of a Philox generator, written down a second time.

The generator's key is the seed, and the step is a high word of its counter. Its raw words, modulo the number of places
where a row can start, are the offsets. A smaller batch has every n-th row.
"""

import numpy as np
import numpy.typing as npt

from assay.config import ResolvedRun
from assay.data import Prepared


def texts_of_step(step: int, run: ResolvedRun, data: Prepared, divisor: int) -> list[npt.NDArray[np.int64]]:
    """Return the texts of a step's rows: each has one token more than a row."""
    length, rows = run.model.context_length, run.training.batch_size
    words = np.random.Philox(key=run.seed, counter=[0, 0, step, 0]).random_raw(rows)
    starts = [int(word) % (len(data.train) - length) for word in words][::divisor]
    return [np.asarray(data.train.ids[start : start + length + 1]).astype(np.int64) for start in starts]
