"""The library of hooks, built once for all tests, also for those of other workers of pytest."""

from pathlib import Path

import pytest

from assay.config import Home
from assay.fake import hooks


def shared_library(factory: pytest.TempPathFactory, home: Path) -> Path:
    """Build the library if no test has, give a home the folder where it is kept, and return the library."""
    kept = factory.getbasetemp().parent / "assay-fake"
    library = hooks.hooks_library(kept, lambda text: None)
    there = Home(home).cache / "fake"
    if not there.exists():
        there.parent.mkdir(parents=True, exist_ok=True)
        there.symlink_to(kept)
    return library
