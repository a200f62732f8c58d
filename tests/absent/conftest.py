"""Scripts on an absent GPU, each in a process of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import api
from support.absent import PYTHON, Ran, script


@pytest.fixture(scope="session")
def absent_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the library is built once for all tests."""
    return tmp_path_factory.mktemp("absent")


@pytest.fixture
def home(absent_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same home, as the command finds it."""
    monkeypatch.setenv("ASSAY_HOME", str(absent_home))


@pytest.fixture
def run(home: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run the text of a script on an absent GPU."""

    def ran(text: str, *arguments: str, device: str = "rtx4090", **options: Any) -> Ran:
        found = api.absent(device, [PYTHON, script(tmp_path, text), *arguments], **options)
        return Ran(found, capfd.readouterr().err)

    return ran
