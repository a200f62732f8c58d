"""The scripts of `benchmarks/` can be imported as they are when they run: each beside the others."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
