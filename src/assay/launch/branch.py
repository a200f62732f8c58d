"""Branch a new run from a checkpoint of another, so that runs of several lengths share their stable phase.

The new run has the other's configuration, and an end of its own. By default its learning rate falls from the step of
the checkpoint on (`training.schedule=wsd`), and its length follows from `training.decay_fraction`. The rates of all
steps so far must be those of the new schedule. So the run is what it would have been without the other. The checkpoint
is copied into a folder of its own, and the record names the run and the step.
"""

from collections.abc import Sequence

from assay.config.hf.checkpoint_files import WEIGHTS
from assay.config.home import Home
from assay.config.loading import load
from assay.config.run import Run, TrainingConfig
from assay.errors import UsageError, suggestion
from assay.launch.tensor_files import non_finite_in, tensors_in
from assay.records.run import Branch
from assay.store.lookup import find
from assay.store.run_folder import RunFolder
from assay.training.learning_rate import decay_start, schedule

_END = ("steps", "tokens", "seconds", "target_loss", "schedule", "decay_fraction", "decay_steps", "min_learning_rate")
_MEASURED = ("eval_interval", "eval_batches", "checkpoint_interval", "keep_steps", "gradient_probe", "measure_memory")
ENDING = tuple(f"training.{name}" for name in (*_END, *_MEASURED))
"""Keys that a branch may change: its end, and what is measured."""
_NEW_END = ("training.decay_steps=null", "training.tokens=null", "training.seconds=null", "training.keep_steps=[]")


def run_to_branch(home: Home, place: str, overrides: Sequence[str]) -> tuple[RunFolder, Branch, Run]:
    """Return the folder of the other run, the branch, and the new run. `place` is RUN@STEP.

    Raises `UsageError` if there is no such checkpoint, or if the new schedule has other rates before it.
    """
    name, at, text = place.rpartition("@")
    if not at or not text.isdigit():
        raise UsageError(f"--branch {place!r} is not possible; write RUN@STEP, such as last@800")
    folder, step = find(home, name), int(text)
    _can_begin_with(folder, step)
    for key in (override.partition("=")[0] for override in overrides):
        if key not in ENDING:
            hint = suggestion(key, list(ENDING)) or f"; only {', '.join(ENDING)} can"
            raise UsageError(f"{key!r} cannot change in a branch{hint}")
    parent = folder.spec().config.asked()
    run = load(load(parent, ["training.schedule=wsd", *_NEW_END, *overrides]))
    if not any(override.startswith("training.steps=") for override in overrides):
        run = load(run, [f"training.steps={round(step / (1 - min(run.training.decay_fraction, 0.99)))}"])
    _keeps_rates(parent.training, run.training, step)
    return folder, Branch(run=folder.id, step=step), run


def branch_at(folder: RunFolder, step: int, training: TrainingConfig) -> Branch:
    """Return the branch with which a run of these settings can begin.

    Raises `UsageError` if there is no such checkpoint, or if the settings have other rates before it.
    """
    _can_begin_with(folder, step)
    _keeps_rates(folder.spec().config.training, training, step)
    return Branch(run=folder.id, step=step)


def _can_begin_with(folder: RunFolder, step: int) -> None:
    """Raise `UsageError` unless the run has a checkpoint of this step whose weights are numbers."""
    saved = folder.saved_steps()
    if step not in saved:
        there = ", ".join(map(str, sorted(saved))) or "none"
        raise UsageError(
            f"the run {folder.id} has no checkpoint of step {step}; it has {there}. A run with "
            f"training.keep_steps=[{step}] keeps it"
        )
    if fault := non_finite_in(tensors_in([saved[step] / WEIGHTS])):
        raise UsageError(f"{fault} in the checkpoint of step {step} of the run {folder.id}; choose an earlier step")


def _keeps_rates(parent: TrainingConfig, training: TrainingConfig, step: int) -> None:
    """Raise `UsageError` if nothing is left to train, or if a step that was done has another rate in the branch."""
    if training.steps <= step:
        raise UsageError(f"training.steps={training.steps} ends before the branch at step {step}; give more steps")
    was, now = schedule(parent), schedule(training)
    bent = next((one for one in range(step) if was(one) != now(one)), None)
    if bent is None:
        return
    rates = f"step {bent} had the learning rate {was(bent):.3g}, and would have {now(bent):.3g}"
    remedy = "branch from a step before the learning rate fell"
    if training.schedule == "wsd" and decay_start(training) < step:
        remedy = f"its decay would begin at step {decay_start(training)}: give more training.steps, or a smaller "
        remedy += "training.decay_fraction"
    raise UsageError(f"a branch at step {step} would bend the schedule: {rates}; {remedy}")
