"""Random tokens in memory to train on. The kit for a GPU uses them, too, where pytest is missing."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.config import Run


@dataclass
class RandomShard:
    """A token stream in memory."""

    ids: np.ndarray[Any, np.dtype[np.uint16]]

    def __len__(self) -> int:
        return len(self.ids)


class RandomData:
    """Stands in for a prepared corpus."""

    def __init__(self, run: Run) -> None:
        ids = np.random.default_rng(0).integers(run.model.vocabulary, size=3 * run.model.context_length + 999)
        self.train = self.validation = RandomShard(ids.astype(np.uint16))
