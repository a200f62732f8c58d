"""A home of its own for every test, and a text."""

from pathlib import Path

import pytest

from assay.config import Home


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
