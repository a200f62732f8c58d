"""A small corpus, prepared once, and a tiny run over it."""

from pathlib import Path

import pytest

from assay.config import DataConfig, Home
from assay.data import Prepared, prepare

TEXT = "\n".join(f"{n} bottles of milk stand on the wall, {n * n % 97} of them are green." for n in range(400))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder: Path = tmp_path_factory.mktemp("corpus")
    (folder / "text.txt").write_text(TEXT)
    return prepare(DataConfig(path=str(folder / "text.txt"), tokenizer="byte"), Home(folder / "home"))
