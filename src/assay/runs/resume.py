"""Go on with a run that was stopped: the same configuration, from its newest checkpoint, in the same folder.

Only the budget may change: whatever else decides what is trained would make it another run under the old one's name.
More steps also stretch a cosine schedule that ends with the last step, so the steps already done followed another one.
"""

from collections.abc import Sequence

from assay.config.home import Home
from assay.config.load import load
from assay.config.run import Run
from assay.errors import UsageError, meant
from assay.runs.folder import RunFolder
from assay.runs.lookup import find
from assay.runs.prepare import ReadyRun
from assay.runs.record import RunResult, Status
from assay.runs.recover import settle

BUDGET = ("training.steps", "training.tokens", "training.seconds", "training.target_loss", "ranks", "oversubscribe")
"""What may be given anew: how far to train, and on how many processes."""


def continued(home: Home, name: str, overrides: Sequence[str]) -> tuple[RunFolder, Run]:
    """The folder to go on in, and the run with its new budget.

    Raises `UsageError` for a run that is running, has nothing left to do or would only end so again.
    """
    for override in overrides:
        key = override.partition("=")[0]
        if key not in BUDGET:
            raise UsageError(
                f"{key!r} would make it another run{meant(key, list(BUDGET))}; with a resumed run only "
                f"{', '.join(BUDGET)} can be changed"
            )
    folder = find(home, name)
    asked = folder.spec().config
    run = load(asked, overrides)
    _something_is_left(settle(folder), asked, run)
    return folder, run


def same_corpus(folder: RunFolder, ready: ReadyRun) -> None:
    """Raise `UsageError` when the corpus is no longer the one that the run has seen."""
    if folder.spec().corpus_digest != ready.corpus_digest:
        raise UsageError(f"the corpus of the run {folder.id} has changed since; start a new run, or put the text back")


def _something_is_left(result: RunResult, asked: Run, run: Run) -> None:
    if result.status is Status.RUNNING:
        raise UsageError(f"the run {result.run} is still running; stop it first")
    if result.status is Status.DONE and run.training.steps <= result.steps:
        raise UsageError(
            f"the run {result.run} is done after {result.steps} steps; give a higher training.steps to go on"
        )
    if result.status is Status.BUDGET_REACHED and run == asked:
        raise UsageError(
            f"the run {result.run} has spent its budget: {result.reason}; "
            "give more training.tokens or training.seconds to go on"
        )
    if result.status is not Status.DONE and not result.status.resumable:
        raise UsageError(f"the run {result.run} ended as {result.status} and would again; start a new one")
    if run.training.steps < result.steps:
        raise UsageError(
            f"the run {result.run} has done {result.steps} steps; training.steps={run.training.steps} would be too few"
        )
