"""A home of its own for every test, and the shared files where they are there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.config import Home

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty home, which the command line finds too."""
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    return Home().ready()


@pytest.fixture
def story(tmp_path: Path) -> Path:
    """A text file of 27,000 bytes with characters of one, two and three bytes."""
    path = tmp_path / "story.txt"
    path.write_text("".join(f"Line {i}: the café’s 3rd cup.\n\n" for i in range(800)), encoding="utf-8")
    return path


@pytest.fixture
def shared() -> Callable[[str], Path]:
    """A file or folder of the shared data; the test skips without it."""

    def find(name: str) -> Path:
        if not (SHARED / name).exists():
            pytest.skip(f"needs ../shared/data/{name}")
        return SHARED / name

    return find
