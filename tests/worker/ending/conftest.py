"""A run with checkpoints, in a home of its own."""

from pathlib import Path

import pytest

from assay.config import Home
from support.trained import Trained, maker


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    home = Home(tmp_path / "home").ready()
    monkeypatch.setenv("ASSAY_HOME", str(home.root))
    return maker(home, tmp_path)
