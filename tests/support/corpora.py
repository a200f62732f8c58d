"""Text and tokens to train on: a small prepared corpus, and random tokens in memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.config import DataConfig, Home, Run
from assay.data import Prepared, prepare

TEXT = "\n".join(f"{n} bottles of milk stand on the wall, {n * n % 97} of them are green." for n in range(400))


def small_corpus(folder: Path) -> Prepared:
    """Some 24 kB of text, byte by byte."""
    (folder / "text.txt").write_text(TEXT)
    return prepare(DataConfig(path=str(folder / "text.txt"), tokenizer="byte"), Home(folder / "home"))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """That corpus, which nobody changes."""
    return small_corpus(tmp_path_factory.mktemp("corpus"))


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
