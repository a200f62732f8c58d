"""Resume a stopped run with the same configuration, from its newest checkpoint, in the same folder.

Only the budget and the mesh may change. Any other change that affects training would make it another run under the old
name. A checkpoint is the same from every mesh, so techniques that only divide a run among ranks may be exchanged. On
one rank they are left out. More steps also stretch a cosine schedule that ends with the run, so the steps already done
followed another schedule. The run then says so, and its record keeps the sentence.
"""

from collections.abc import Sequence

from assay.config.hf.checkpoint_files import WEIGHTS
from assay.config.home import Home
from assay.config.loading import keys, load, validate
from assay.config.run import Run, Spec
from assay.errors import START_AGAIN, UsageError, suggestion
from assay.launch.prepare import ReadyRun
from assay.launch.tensor_files import non_finite_in, tensors_in
from assay.optimizations import Numerics, check_divided, resolve
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.cells import studies_by_run
from assay.store.lookup import find
from assay.store.result import settle
from assay.store.run_folder import RunFolder

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
