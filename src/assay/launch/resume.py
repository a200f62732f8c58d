"""Go on from a checkpoint: resume a stopped run, or branch a new run from another.

A run is resumed with the same configuration, from its newest checkpoint, in the same folder. Only the budget and the
mesh may change. Any other change that affects training would make it another run under the old name. A checkpoint is
the same from every mesh, so techniques that only divide a run among ranks may be exchanged. On one rank they are left
out. More steps also stretch a cosine schedule that ends with the run, so the steps already done followed another
schedule. The run then says so, and its record keeps the sentence.

Runs of several lengths share their stable phase if the longer ones branch from a checkpoint. The new run has the
other's configuration, and an end of its own. By default its learning rate falls from the step of the checkpoint on
(`training.schedule=wsd`), and its length follows from `training.decay_fraction`. The rates of all steps so far must be
those of the new schedule. So the run is what it would have been without the other. The checkpoint is copied into a
folder of its own, and the record names the run and the step.
"""

from collections.abc import Sequence

from assay.config.hf.checkpoint_files import WEIGHTS
from assay.config.home import Home
from assay.config.loading import keys, load, validate
from assay.config.run import Run, Spec, TrainingConfig
from assay.errors import START_AGAIN, UsageError, suggestion
from assay.launch.prepare import ReadyRun
from assay.launch.tensor_files import non_finite_in, tensors_in
from assay.optimizations import Numerics, check_divided, resolve
from assay.records.run import Branch, RunResult
from assay.records.status import Status
from assay.store.cells import studies_by_run
from assay.store.lookup import find
from assay.store.result import settle
from assay.store.run_folder import RunFolder
from assay.training.learning_rate import decay_start, schedule

BUDGET = ("training.steps", "training.tokens", "training.seconds", "training.target_loss", "ranks", "oversubscribe")
"""Keys that a resume may change: the budget and the number of processes."""


def run_to_resume(
    home: Home, name: str, overrides: Sequence[str], techniques: Sequence[Spec] = ()
) -> tuple[RunFolder, Run]:
    """Return the folder of a run to resume, and the run with its new budget.

    `techniques` divide the run among ranks in place of its earlier ones. Raises `UsageError` for a run that is running,
    has nothing left to do, or would end the same way again.
    """
    for override in overrides:
        key = override.partition("=")[0]
        if key not in BUDGET:
            hint = "" if key in keys() else suggestion(key, list(BUDGET))
            raise UsageError(f"{key!r} cannot change when a run is resumed{hint}; only {', '.join(BUDGET)} can")
    folder = find(home, name)
    if name == "last" and (study := studies_by_run(home).get(folder.id)) is not None:
        raise UsageError(
            f"every run here belongs to a study; `assay study resume {study}` continues the study of the last one"
        )
    asked = folder.spec().config.asked()
    run = _divided(load(asked, overrides), techniques)
    result = settle(folder)
    _something_is_left(result, asked, run)
    _has_a_place_to_go_on(folder, result)
    _goes_on_from_numbers(folder)
    return folder, run


def _has_a_place_to_go_on(folder: RunFolder, result: RunResult) -> None:
    """Raise `UsageError` for a run with results and without a checkpoint, which would silently begin again."""
    if result.status in (Status.DONE, Status.BUDGET_REACHED) and folder.newest_checkpoint() is None:
        raise UsageError(
            f"the run {folder.id} has no checkpoint to continue from, and would begin again in place of its result; "
            f"{START_AGAIN}"
        )


def _goes_on_from_numbers(folder: RunFolder) -> None:
    """Raise `UsageError` if the newest checkpoint has weights that are NaN or infinite.

    A checkpoint that cannot be read is left to the run, which continues from the one before it.
    """
    newest = folder.newest_checkpoint()
    try:
        fault = "" if newest is None else non_finite_in(tensors_in([newest / WEIGHTS]))
    except UsageError:
        return
    if fault:
        raise UsageError(
            f"{fault} in the newest checkpoint of the run {folder.id}, so it would diverge; delete {newest} to "
            f"continue from the checkpoint before it, or {START_AGAIN}"
        )


def _divided(run: Run, techniques: Sequence[Spec]) -> Run:
    """Exchange the techniques that divide the run among ranks; all others define the run and stay."""
    for spec in techniques:
        if not _divides(spec):
            raise UsageError(
                f"{spec.name} cannot be added when a run is resumed; --with accepts only techniques that divide "
                "the run among ranks, in place of its former ones"
            )
    kept = tuple(spec for spec in run.optimizations if not _divides(spec))
    if techniques or run.ranks == 1:
        return validate({**run.model_dump(), "optimizations": (*kept, *techniques)})
    check_divided(run)
    return run


def _divides(spec: Spec) -> bool:
    """True if a technique only divides; one that also computes in fewer bits changes the training."""
    one = resolve(spec)
    return bool(one.axes()) and one.promised is Numerics.REASSOCIATED


def same_corpus(folder: RunFolder, ready: ReadyRun) -> None:
    """Raise `UsageError` if the corpus is not the one on which the run was trained."""
    if folder.spec().corpus_digest != ready.corpus_digest:
        raise UsageError(
            f"the corpus of the run {folder.id} has changed since it was trained; start a new run, or restore the text"
        )


def _something_is_left(result: RunResult, asked: Run, run: Run) -> None:
    if result.status is Status.RUNNING:
        raise UsageError(f"the run {result.run} is still running; stop it first")
    if result.status is Status.DONE and run.training.steps <= result.steps:
        raise UsageError(
            f"the run {result.run} is done after {result.steps} steps; give a higher training.steps to continue"
        )
    if result.status is Status.BUDGET_REACHED and run.training == asked.training:
        raise UsageError(
            f"the run {result.run} has spent its budget: {result.reason}; "
            "give more training.tokens or training.seconds to continue"
        )
    if result.status is not Status.DONE and not result.status.resumable:
        raise UsageError(f"the run {result.run} ended as {result.status} and would end so again; start a new run")
    if run.training.steps < result.steps:
        raise UsageError(
            f"the run {result.run} has done {result.steps} steps; training.steps={run.training.steps} is too low"
        )


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
