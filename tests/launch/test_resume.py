"""A resume that would end as badly again is refused before anything starts."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from assay.config import Home
from assay.errors import UsageError
from assay.launch import spawn as launcher
from assay.launch.resume import run_to_resume
from support.children import Fake, make_ready


def test_a_checkpoint_whose_weights_are_no_numbers_is_refused(home: Home, fake: Fake) -> None:
    fake.behaves(status="interrupted")
    with launcher.start(make_ready(home), home) as child:
        child.result()
    place = child.folder.checkpoints / "step-00000099"
    place.mkdir(parents=True)
    weights = {"head.norm.weight": np.ones(8, np.float32)}
    save_file(weights, place / "model.safetensors")
    assert run_to_resume(home, child.folder.id, [])[0].id == child.folder.id
    weights["head.norm.weight"][2] = np.nan
    save_file(weights, place / "model.safetensors")
    with pytest.raises(UsageError) as error:
        run_to_resume(home, child.folder.id, [])
    assert str(error.value).startswith("head.norm.weight is NaN or infinite in 1 of 8 numbers in the newest checkpoint")
    assert f"delete {place} to continue from the checkpoint before it" in str(error.value)
    damage(place / "model.safetensors")
    assert run_to_resume(home, child.folder.id, [])[0].id == child.folder.id, "the run falls back by itself"


@pytest.mark.parametrize("status", ["done", "budget_reached"])
def test_a_result_without_a_checkpoint_is_not_begun_again(home: Home, fake: Fake, status: str) -> None:
    fake.behaves(status=status)
    with launcher.start(make_ready(home), home) as child:
        child.result()
    shutil.rmtree(child.folder.checkpoints, ignore_errors=True)
    with pytest.raises(UsageError, match="has no checkpoint to continue from, and would begin again"):
        run_to_resume(home, child.folder.id, ["training.steps=900"])
    (child.folder.checkpoints / "step-00000099").mkdir(parents=True)
    assert run_to_resume(home, child.folder.id, ["training.steps=900"])[0].id == child.folder.id


def damage(path: Path) -> None:
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
