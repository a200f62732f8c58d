"""Text to train on: a small prepared corpus."""

from pathlib import Path

import pytest

from assay.config import DataConfig, Home
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
