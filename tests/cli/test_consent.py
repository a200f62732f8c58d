"""Code that an imported record names runs only if somebody at a terminal lets it."""

from pathlib import Path

import pytest

from assay.config import Home
from assay.store.foreign import remember
from assay.store.run_folder import RunFolder
from cli.conftest import TINY, Assay
from support.children import Fake

OWN = """
import torch
from pathlib import Path

Path("{ran}").touch()


def make():
    return torch.nn.Linear(2, 2)
"""


@pytest.fixture
def foreign(assay: Assay, fake: Fake, corpus: str, home: Home, tmp_path: Path) -> RunFolder:
    """A run on a model of somebody else, whose file notes that it ran."""
    run = RunFolder(home.runs / assay("train", corpus, *TINY, "--json").value["run"])
    (tmp_path / "evil.py").write_text(OWN.format(ran=tmp_path / "ran"))
    spec = run.spec()
    model = spec.config.model.model_copy(update={"own": "evil.py:make", "own_folder": str(tmp_path)})
    run.prepare(spec.model_copy(update={"config": spec.config.model_copy(update={"model": model})}))
    remember(home, [model])
    return run


def test_without_a_terminal_it_does_not_run(assay: Assay, foreign: RunFolder, tmp_path: Path) -> None:
    said = assay("train", "--resume", foreign.id, "training.steps=8")
    assert said.code == 2
    assert f"the function make of '{tmp_path / 'evil.py'}', which an imported record names" in said.sentence()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("answer", "ran"), [("n\n", False), pytest.param("y\n", True, marks=pytest.mark.slow)])
def test_a_question_names_the_file(
    answer: str, ran: bool, assay: Assay, foreign: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.cli.main._at_a_terminal", lambda: True)
    said = assay("train", "--resume", foreign.id, "training.steps=8", answer=answer)
    assert f"names the function make of '{tmp_path / 'evil.py'}'. Let this file run? [y/N]" in said.err
    assert (tmp_path / "ran").exists() is ran
    assert ("nothing was done" in said.err) is not ran
