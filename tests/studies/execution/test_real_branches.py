"""A small real study with decay branches, killed in its middle: each point is the separate run of as many steps."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from assay import api
from assay.config import Home
from assay.records.study import AGAIN, BASELINE, CellResult, StudyEnding
from assay.store.run_folder import RunFolder
from assay.studies.folder import find

pytestmark = pytest.mark.slow

STUDY = """
kind: isoflop
base: demo
overrides:
  - data.path={text}
  - model.n_layer=3
  - model.n_embd=48
  - model.n_head=6
  - model.dropout=0.1
  - model.context_length=16
  - training.batch_size=4
  - training.steps=100
  - training.warmup_steps=5
  - training.eval_interval=0
runs: {{4e8: [16, 24], 8e8: [16, 24], 2e9: [16, 24, 32]}}
held_out: {{flops: 2e10, width: 48}}
branches: true
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, Mapping[str, CellResult]]:
    """The cells of a study whose process was killed when its first branch began, and that was resumed."""
    place = tmp_path_factory.mktemp("branches")
    text, file, home = place / "text.txt", place / "law.yaml", Home(place / "home").ready()
    text.write_text("".join(f"{number} is followed by {number + 1}.\n" for number in range(3000)))
    file.write_text(STUDY.format(text=text))
    words = [sys.executable, "-m", "assay", "study", "run", str(file)]
    coordinator = subprocess.Popen(words, env={**os.environ, "ASSAY_HOME": str(home.root)}, stdout=subprocess.DEVNULL)
    while not any(RunFolder(path).spec().branch for path in home.runs.iterdir() if (path / "run.json").exists()):
        assert coordinator.poll() is None, "it ended without a branch"
        time.sleep(0.02)
    coordinator.send_signal(signal.SIGKILL)
    coordinator.wait()
    assert find(home, "last").record() is None
    record = api.study.resume("last", home=home).record
    assert record.ending is StudyEnding.COMPLETE
    return home, {one.cell.name: one for one in record.cells}


def test_every_planned_branch_began_with_its_trunk(found: tuple[Home, Mapping[str, CellResult]]) -> None:
    _, cells = found
    branched = [one for one in cells.values() if one.cell.branch is not None]
    assert len(branched) == 4
    for one in branched:
        assert one.cell.branch is not None
        assert one.result.branch is not None
        trunk = cells[one.cell.branch.cell].result
        assert (one.result.branch.run, one.result.branch.step) == (trunk.run, one.cell.branch.step)
        assert one.result.steps == one.cell.run.training.steps
        assert one.result.tokens == one.result.steps * one.cell.run.tokens_per_step


def test_the_control_is_its_second_run_that_trained_all_of_its_steps(
    found: tuple[Home, Mapping[str, CellResult]],
) -> None:
    _, cells = found
    control, again = (
        next(one.result for one in cells.values() if one.cell.treatment == row) for row in (BASELINE, AGAIN)
    )
    assert control.branch is not None
    assert again.branch is None
    assert (control.val_loss, control.train_loss) == (again.val_loss, again.train_loss)


def test_a_branch_is_bit_equal_to_a_separate_run_of_as_many_steps(
    found: tuple[Home, Mapping[str, CellResult]], tmp_path: Path
) -> None:
    _, cells = found
    for one in cells.values():
        if one.cell.branch is None:
            continue
        alone = api.train(one.cell.run.asked(), home=tmp_path / "alone")
        assert alone.branch is None
        assert (alone.val_loss, alone.train_loss, alone.tokens) == (
            one.result.val_loss,
            one.result.train_loss,
            one.result.tokens,
        )
