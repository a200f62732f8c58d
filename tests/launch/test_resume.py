"""A resume or a branch that cannot go well is refused before anything starts; a branch keeps its trunk's rates."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from assay.config import Home
from assay.errors import UsageError
from assay.launch import spawn as launcher
from assay.launch.resume import run_to_branch, run_to_resume
from assay.launch.tensor_files import non_finite_in, tensors_in
from assay.records.run import Branch
from assay.store.run_folder import RunFolder
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


CONSTANT = {"schedule": "constant", "warmup_steps": 2, "keep_steps": [40, 80]}


def saved(folder: RunFolder, step: int, number: float = 1.0) -> Path:
    place = folder.checkpoints / f"step-{step:08d}"
    place.mkdir(parents=True)
    save_file({"head.norm.weight": np.full(8, number, np.float32)}, place / "model.safetensors")
    return place


def trunk_of(home: Home, **training: object) -> RunFolder:
    """A run that the stand-in did, with checkpoints of two steps."""
    with launcher.start(make_ready(home, **{"steps": 100, **CONSTANT, **training}), home) as child:  # type: ignore[arg-type]
        child.result()
    saved(child.folder, 40), saved(child.folder, 80)
    return child.folder


def test_its_rate_falls_from_the_branch_on_unless_told_otherwise(home: Home, fake: Fake) -> None:
    trunk = trunk_of(home, tokens=10**6, seconds=60.0)
    folder, branch, run = run_to_branch(home, f"{trunk.id}@80", [])
    training = run.training
    assert (folder.id, branch) == (trunk.id, Branch(run=trunk.id, step=80))
    assert (training.schedule, training.steps, training.decay_fraction) == ("wsd", 100, 0.2)
    assert (training.tokens, training.seconds, training.keep_steps) == (None, None, ())
    assert run.model == trunk.spec().config.model
    _, _, longer = run_to_branch(home, f"{trunk.id}@40", ["training.decay_fraction=0.5"])
    assert longer.training.steps == 80
    _, _, later = run_to_branch(home, "last@40", ["training.steps=60", "training.decay_fraction=0.1"])
    assert (later.training.steps, later.training.decay_fraction) == (60, 0.1)


@pytest.mark.parametrize(
    ("place", "overrides", "said"),
    [
        ("last", [], "write RUN@STEP, such as last@800"),
        ("last@80x", [], "write RUN@STEP"),
        ("last@70", [], "no checkpoint of step 70; it has 40, 80, 100. A run with training.keep_steps=[70] keeps it"),
        ("last@80", ["training.steps=80"], "training.steps=80 ends before the branch at step 80"),
        ("last@80", ["training.steps=90"], "its decay would begin at step 72: give more training.steps"),
        ("last@80", ["training.schedule=cosine"], "would bend the schedule: step 3 had the learning rate 0.001"),
        ("last@80", ["model.n_layer=2"], "'model.n_layer' cannot change in a branch; only training.steps"),
        ("last@80", ["training.stepz=90"], "did you mean 'training.steps'"),
    ],
)
def test_a_place_or_a_change_that_is_no_branch_is_refused(
    home: Home, fake: Fake, place: str, overrides: list[str], said: str
) -> None:
    trunk_of(home)
    with pytest.raises(UsageError) as error:
        run_to_branch(home, place, overrides)
    assert said in str(error.value)


def test_a_run_whose_rate_has_fallen_has_no_branch_there(home: Home, fake: Fake) -> None:
    trunk_of(home, schedule="wsd", decay_fraction=0.5)
    assert run_to_branch(home, "last@40", ["training.steps=200"])[2].training.decay_fraction == 0.5
    with pytest.raises(UsageError, match=r"step 51 had the learning rate 0.00098.*; branch from a step before"):
        run_to_branch(home, "last@80", ["training.steps=200"])


def test_a_checkpoint_that_is_no_numbers_is_refused(home: Home, fake: Fake) -> None:
    trunk = trunk_of(home)
    saved(trunk, 60, np.nan)
    with pytest.raises(UsageError, match=r"in the checkpoint of step 60 of the run .*; choose an earlier step"):
        run_to_branch(home, "last@60", [])


def test_the_new_run_has_the_checkpoint_and_outlives_the_other(home: Home, fake: Fake) -> None:
    trunk = trunk_of(home)
    ready = replace(make_ready(home, steps=100), branch=Branch(run=trunk.id, step=80))
    with launcher.start(ready, home) as child:
        child.result()
    trunk.remove()
    assert child.folder.spec().branch == Branch(run=trunk.id, step=80)
    assert sorted(child.folder.saved_steps()) == [80, 100]
    assert non_finite_in(tensors_in([child.folder.checkpoints / "step-00000080" / "model.safetensors"])) == ""
    assert child.folder.spec().origin[0].startswith(f"branched from the run {trunk.id} after 80 steps")


def test_a_disk_without_links_gets_a_copy(home: Home, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError("no links here")

    trunk = trunk_of(home)
    monkeypatch.setattr(os, "link", refused)
    other = RunFolder(home.runs / "other")
    other.adopt_checkpoint(trunk.saved_steps()[40])
    ours, theirs = (one.saved_steps()[40] / "model.safetensors" for one in (other, trunk))
    assert ours.read_bytes() == theirs.read_bytes()
    assert ours.stat().st_ino != theirs.stat().st_ino
