"""A resume that would end as badly again is refused before anything starts."""

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


def damage(path: Path) -> None:
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
