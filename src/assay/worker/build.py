"""Build the training loop of a run from `run.json`: data, program, optimizations and newest checkpoint."""

import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from assay.config.run import ResolvedRun
from assay.cost import parameter_count
from assay.data import Prepared, open_prepared
from assay.errors import UsageError
from assay.hardware import Machine, detect
from assay.model.own_batches import OwnBatches
from assay.optimizations import Optimization, check, trained_model
from assay.parallel.process_rank import ALONE, Ranks, local_world
from assay.records.run import Environment
from assay.step.program import Step
from assay.store.run_folder import RunFolder, RunSpec
from assay.training.batches import own_validation, validation_batches
from assay.training.build import baseline, build
from assay.training.checkpoints import checkpoint
from assay.training.initial import initial_weights
from assay.training.loop import Loop, Observer
from assay.training.probes import ActivationNorms
from assay.worker.environment import environment
from assay.worker.proof.moved import digests, frozen_digests

NUDGED_NOISE = 1_000_003
"""Distance between the dropout seeds of two nudges: a CPU's generator reads the low 32 bits of a seed."""


@dataclass(frozen=True)
class Built:
    """A loop, and the facts found while it was built."""

    loop: Loop
    environment: Environment
    notes: tuple[str, ...]
    """Notes for the user, for instance that a damaged checkpoint was skipped."""
    parameters: int
    split_tokens: int | None
    """Tokens of the training text; None for batches of a user's own."""
    initial: Mapping[str, int]
    """Digest of every parameter's initial value. A resumed run does not read the weights again that it began with.
    Frozen ones are then those of its checkpoint."""
    data: Prepared
    """The corpus, from which counters hold the rows that were read."""


def build_loop(
    folder: RunFolder, spec: RunSpec, optimizations: Sequence[Optimization], observer: Observer, ranks: Ranks
) -> Built:
    """Build the run's step and load its newest checkpoint. Raises `UsageError` for a fault that the user can fix."""
    run, machine = spec.config, detect()
    check(run, machine)
    device = device_of(run, ranks.local_rank, machine)
    settle_torch(run, device, ranks)
    leave_imports_out_of_collections()
    data = open_prepared(folder.data_folder(spec))
    fresh = not checkpoint.complete(folder.checkpoints)
    step = build_step(run, data, device, optimizations, ranks, fresh=fresh)
    initial = digests(step)
    torch.manual_seed(run.seed + ranks.noise(step.program.parallel.sequence_parts) + NUDGED_NOISE * run.nudge)
    position, notes = checkpoint.resume(folder.checkpoints, step, ranks, run.seed)
    own = _same_batches(run, step)
    windows, sample = validation_batches(run, data, device) if own is None else own_validation(own, device)
    loop = Loop(
        run=run,
        step=step,
        position=position,
        probes=ActivationNorms(step),
        windows=windows if own is None or own.held_out is not None else None,
        sample=sample,
        bytes_per_token=data.bytes_per_token if own is None else None,
        save=lambda now: checkpoint.save(folder.checkpoints, step, now, spec.identity, ranks, run.training.keep_steps),
        observer=observer,
        saved_at=position.step,
        ranks=ranks,
    )
    return Built(
        loop=loop,
        environment=environment(run, machine, device, data.digest),
        notes=(*spec.bends, *spec.origin, *notes, *_notes(data, ranks, own), *_unread(run, optimizations)),
        parameters=_parameters(run, step),
        split_tokens=data.manifest.train.tokens if own is None else None,
        initial=initial if fresh or run.model.init_from is None else initial | frozen_digests(step),
        data=data,
    )


def _notes(data: Prepared, ranks: Ranks, own: OwnBatches | None) -> tuple[str, ...]:
    """Notes on figures of several ranks, and on what of the corpus is not read."""
    over_ranks = f"{ranks.layout}: memory is that of the highest rank, time that of the slowest"
    remarks = data.manifest.remarks if own is None else ()
    return (*((over_ranks,) if ranks.world > 1 else ()), *map(str, remarks))


def _unread(run: ResolvedRun, optimizations: Sequence[Optimization]) -> list[str]:
    """Notes on what techniques will not read of texts of their own."""
    return [said for one in optimizations for said in one.remarks(run)]


def _parameters(run: ResolvedRun, step: Step) -> int:
    """Number of parameters of the run's model; those of a user's own are counted in the step."""
    counted = run.model.own is None
    return parameter_count(trained_model(run)) if counted else sum(one.numel() for _, one in step.named_parameters())


def _same_batches(run: ResolvedRun, step: Step) -> OwnBatches | None:
    """Return the user's batches, if there are any. Raises `UsageError` if they are not those that the run began with.

    The run's process imports the user's module anew, which may have changed since its parent checked it.
    """
    if run.model.own is None:
        return None
    from assay.model.own_model import batches_of

    own = batches_of(step.parts)
    if (None if own is None else own.checked()) != run.own_rows:
        raise UsageError(f"the batches of {run.model.own} are not those that were checked; start a new run")
    return own


def build_step(
    run: ResolvedRun,
    data: Prepared,
    device: torch.device,
    optimizations: Sequence[Optimization],
    ranks: Ranks,
    *,
    fresh: bool,
) -> Step:
    """Build the run's step with its optimizations; `fresh` loads the initial weights that the run names, if any."""
    source = run.model.init_from
    # A checkpoint holds all weights, so a resumed run does not need its initial ones.
    weights = initial_weights(Path(source), run.model) if source is not None and fresh else None
    program = baseline(run, data, device, weights, ranks)
    for one in optimizations:
        program = one.apply(program, run)
    return build(program)


def device_of(run: ResolvedRun, local_rank: int = 0, machine: Machine | None = None) -> torch.device:
    """The run's device on this machine; each rank of a machine has an accelerator of its own."""
    kind = (machine or detect()).device(run.device)
    return torch.device(kind, local_rank) if kind == "cuda" else torch.device(kind)


def leave_imports_out_of_collections() -> None:
    """Keep Python's garbage collector from visiting what was imported so far.

    A full collection visits about half a million objects of torch, which takes 0.2 s, now and then within a timed step.
    A measured child has no collections until now, since nearly all that is imported lives as long as the process.
    """
    if gc.isenabled():  # this process did other work before, whose garbage must not stay for ever
        gc.collect()
    gc.freeze()
    gc.enable()


def settle_torch(run: ResolvedRun, device: torch.device, ranks: Ranks = ALONE) -> None:
    """Set the number of threads, and on a CPU deterministic kernels, which make repeated runs bit-equal.

    On a GPU deterministic kernels would change the measured figures, so torch's default stays. The ranks of one machine
    divide its cores.
    """
    if run.threads is not None or ranks.world > 1:
        torch.set_num_threads(run.threads or max(1, (os.cpu_count() or 1) // local_world()))
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
