"""The command line in this process, on a home of its own, with the stand-in for the measured child."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.testing

from assay.cli.main import app
from assay.config import Home
from assay.launch import prepare
from assay.records.prediction import Predicted
from support.children import Fake

if TYPE_CHECKING:
    from support.trained import Trained

# The parser of all verbs takes longer to build than many a verb takes to answer.
typer.testing._get_command = cache(typer.testing._get_command)

TINY = (
    "model.n_layer=1",
    "model.n_head=1",
    "model.n_embd=8",
    "model.context_length=8",
    "training.batch_size=2",
    "training.steps=4",
)


@pytest.fixture(autouse=True)
def _figures_are_not_drawn(undrawn: None) -> None:
    """What a verb says and writes is tested here, and its figures in `tests/report`."""


@dataclass
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        return json.loads(self.out)

    def sentence(self) -> str:
        """The one line of an error; progress may stand before it."""
        assert self.out == ""
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if line.startswith("assay: ")]
        assert len(lines) == 1, self.err
        assert self.err.endswith(lines[0] + "\n")
        assert not re.search(r"https?://errors\.pydantic", lines[0])
        return lines[0].removeprefix("assay: ")


Assay = Callable[..., Said]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Not made yet: a command that fails must leave it so."""
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Home(tmp_path / "home")


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    path = tmp_path / "corpus.txt"
    path.write_text("The quick brown fox jumps over the lazy dog.\n" * 50)
    return f"data.path={path}"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setattr(prepare, "predict", lambda run, machine: Predicted(tensors_peak_bytes=990))
    return Fake(monkeypatch)


@pytest.fixture
def trained(home: Home, tmp_path: Path) -> "Trained":
    """Makes a run with checkpoints, whose weights differ."""
    from support.trained import maker  # loads torch, which most commands do not need

    return maker(home, tmp_path)


@pytest.fixture
def assay(home: Home) -> Assay:
    def say(*words: str, answer: str | None = None) -> Said:
        result = typer.testing.CliRunner().invoke(app, list(words), input=answer)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    return say
