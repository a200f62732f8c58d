"""All checks of a run before it starts, so that a faulty run leaves nothing behind.

Cheap checks run first: the names and fields of optimizations, their support on this machine, the initial weights, and
whether the home can be written. The corpus is last; it gives the size of the vocabulary. Only a run that passes all
checks gets a folder.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.home import Home
from assay.config.run import KNOWN_VOCABULARIES, ResolvedRun, Run, identity
from assay.data.progress import Progress, silent
from assay.errors import UsageError
from assay.hardware import Machine
from assay.hardware.detect import detect, usable_cores
from assay.hardware.rates import known_machine
from assay.launch.initial_weights import check_finite, with_initial_weights
from assay.launch.own import inspect_own_model
from assay.optimizations import Unavailable, Unpredicted, check, resolve_run
from assay.records.prediction import Predicted
from assay.records.run import Branch
from assay.store.foreign import check_own_code

if TYPE_CHECKING:
    from assay.data import Prepared


@dataclass(frozen=True)
class ReadyRun:
    """A run that can start."""

    run: ResolvedRun
    """Configuration with optimizations normalized, vocabulary size and the folder of initial weights filled in."""
    data_folder: Path
    corpus_digest: str
    predicted: Predicted | None
    preset: str | None = None
    """Preset or file from which the configuration was loaded."""
    name: str | None = None
    """Name that the user gave the run."""
    branch: Branch | None = None
    """Run and step from which it branches."""
    eval_batches: int = 0
    """Batches of one evaluation; 0 if they are not known, as those of a user's own."""

    @property
    def identity(self) -> str:
        """Hash of the checked configuration."""
        return identity(self.run)


def ready(asked: Run, home: Home, progress: Progress = silent, ranks_here: int | None = None) -> ReadyRun:
    """Check a run against this machine and its corpus, and prepare the corpus.

    `ranks_here` is the number of ranks on this machine, if others run on other machines. Raises `UsageError` for a
    fault that the user can correct, before anything is written in the folder of runs. Raises `StorageError` if the disk
    refuses.
    """
    run = resolve_run(asked)
    check_own_code(home.checked(), run.model)
    machine = known_machine(home, threads_of(run, ranks_here))
    check_room(run, machine, ranks_here or run.ranks)
    run = with_initial_weights(run, home)
    check(run, machine)
    _vocabulary_fits(run, KNOWN_VOCABULARIES.get(run.data.tokenizer, 0))
    check_finite(run)
    with leaving_nothing(run, home):
        prepared = _corpus(run, home.ready(), progress)
        run = with_initial_weights(run.with_vocabulary(prepared.vocab_size), home)
        if run.model.own is None:
            batches = _eval_batches(run, prepared)
            return ReadyRun(run, prepared.folder, prepared.digest, predict(run, machine), eval_batches=batches)
        progress("following a step without its memory", None)
        rows, predicted = inspect_own_model(run, machine)
        run = run.model_copy(update={"own_rows": rows})
        _can_reach_its_target(run)
        return ReadyRun(run, prepared.folder, prepared.digest, predicted)


def threads_of(run: Run, ranks_here: int | None = None) -> int | None:
    """Threads of each rank: the run's setting or an equal share of cores; None on one rank keeps torch's default."""
    if run.threads is not None or run.ranks == 1:
        return run.threads
    return max(1, detect().cores // (ranks_here or run.ranks))


def _corpus(run: Run, home: Home, progress: Progress) -> "Prepared":
    """Prepare the run's corpus. Raises `UsageError` if it is too short, or if the vocabulary is smaller than its."""
    from assay.data import check_lengths, prepare

    prepared = prepare(run.data, home, progress)
    check_lengths(prepared, run.model.context_length)
    _vocabulary_fits(run, prepared.vocab_size)
    return prepared


def _eval_batches(run: Run, prepared: "Prepared") -> int:
    from assay.data import validation_windows

    training = run.training
    return len(
        validation_windows(prepared.validation, run.model.context_length, training.batch_size, training.eval_batches)
    )


@contextmanager
def leaving_nothing(run: Run, home: Home) -> Iterator[None]:
    """Remove the prepared corpus, and the home, if the block created them for a run that then cannot start."""
    from assay.data import folder_for

    folder = folder_for(run.data, home)
    was_there = os.path.exists(folder)
    with home.provisional():
        try:
            yield
        except UsageError:
            if not was_there:
                shutil.rmtree(folder, ignore_errors=True)
            raise


def predict(run: ResolvedRun, machine: Machine) -> Predicted | None:
    """Predict a run with a known vocabulary by the estimator; None if a technique has no ledger.

    No ledger knows a model of the user's own. Its peak is that of a trace, which takes a process of its own.
    """
    from assay.estimator.every_rank import estimate_every_rank

    if run.model.own is not None:
        return inspect_own_model(run, machine)[1]
    try:
        return Predicted.model_validate(estimate_every_rank(run, machine).predicted())
    except Unpredicted:
        return None


def _can_reach_its_target(run: ResolvedRun) -> None:
    if run.training.target_loss is not None and run.own_rows is not None and not run.own_rows.validation:
        raise UsageError(
            f"training.target_loss is a validation loss, and {run.model.own} has no validation batches; give "
            "assay.OwnModel a function validation, or leave the target out"
        )


def _vocabulary_fits(run: Run, tokens: int) -> None:
    asked = run.model.vocab_size
    if asked is not None and asked < tokens:
        remedy = "raise it, or leave it out to use the tokenizer's size"
        if run.model.init_from is not None:
            remedy = "give the tokenizer of model.init_from, such as data.tokenizer=FOLDER/tokenizer.json"
        raise UsageError(f"model.vocab_size={asked} is smaller than the tokenizer's {tokens}; {remedy}")


def check_room(run: Run, machine: Machine, ranks: int) -> None:
    """Raise `Unavailable` if the device is missing, or if ranks outnumber accelerators or cores.

    `oversubscribe` permits fewer cores.
    """
    if run.device == "cuda" and not machine.accelerators:
        raise Unavailable("device=cuda is not possible: this machine has no CUDA device; use device=cpu")
    if machine.device(run.device) == "cuda" and ranks > len(machine.accelerators):
        raise Unavailable(
            f"{ranks} ranks need {ranks} accelerators, and this machine has {len(machine.accelerators)}; "
            "use fewer ranks"
        )
    usable = usable_cores()
    missing = set(run.cores or ()) - usable
    if missing:
        listed, there = (", ".join(map(str, sorted(cores))) for cores in (missing, usable))
        raise Unavailable(f"cores={list(run.cores or ())} is not possible: there is no core {listed} among {there}")
    if ranks > machine.cores and not run.oversubscribe:
        raise Unavailable(
            f"{ranks} ranks need {ranks} cores, and this machine has {machine.cores}; "
            "use fewer ranks, or give --oversubscribe"
        )
