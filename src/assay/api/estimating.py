"""Predict a step or inference, on this machine or on absent ones; and the errors of earlier predictions."""

from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.configuration import Source, Stack, configure, on_device, predictable
from assay.config.home import Home, home_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.api.result_types import AccuracyLedger, PlannedStep, PredictedStep
    from assay.config.run import Run
    from assay.data.progress import Progress
    from assay.estimator.every_rank import EveryRank
    from assay.estimator.inference import Inference
    from assay.hardware import Machine
    from assay.launch.token_budget import TokenBudget
    from assay.records.run import RunResult


def estimate(
    source: Source = None,
    *overrides: str,
    optimizations: Stack = (),
    device: str | None = None,
    machine: "Machine | None" = None,
) -> "PredictedStep":
    """Predict memory, work and time of one optimizer step, without torch and without training.

    `device` names one GPU that may be absent, such as ``a100``: then the time follows from operators that were
    measured on one H200, in proportion to both datasheets, and has a margin. Returns the estimate of the rank with
    the highest peak. `estimate_every_rank` returns all ranks and their joint step time. Raises `UsageError`, also
    if only the corpus determines the vocabulary size.
    """
    from assay.api.result_types import PredictedStep

    every = estimate_every_rank(source, *overrides, optimizations=optimizations, device=device, machine=machine)
    return PredictedStep.from_value(every.fullest, every=every)


def estimate_every_rank(
    source: Source = None,
    *overrides: str,
    optimizations: Stack = (),
    device: str | None = None,
    machine: "Machine | None" = None,
) -> "EveryRank":
    """Predict one optimizer step on every rank of a run: memory and payload of each, and their joint step time.

    Raises the errors of `estimate`.
    """
    from assay.estimator.every_rank import estimate_every_rank as predict
    from assay.hardware.rates import known_machine
    from assay.launch.prepare import threads_of
    from assay.optimizations import check_divided

    run = configure(source, overrides, optimizations)
    if device is not None:
        run, machine = _on_one(run, device, machine)
    check_divided(run)
    with predictable(run, Home()) as known:
        return predict(known, machine or known_machine(Home(), threads_of(known)))


def _on_one(run: "Run", device: str, machine: "Machine | None") -> "tuple[Run, Machine]":
    """Return the run on one device that may be absent, and its machine. Raises `UsageError`."""
    if machine is not None:
        raise UsageError("a device and a machine are two places; give only one of them")
    if run.ranks > 1:
        raise UsageError(f"a device is one GPU, and the run has ranks={run.ranks}; plan several with assay plan")
    return on_device(run, device)


def calibrate(
    source: Source = None,
    *overrides: str,
    optimizations: Stack = (),
    seconds: float = 20.0,
    tell: "Callable[[str], None]" = lambda text: None,
) -> "PredictedStep":
    """Time steps of the model with few blocks on this machine, keep their times, and return the estimate from them.

    It takes about `seconds` at most; a step that was timed before takes none. `tell` receives sentences on progress,
    and the reason if the step cannot be timed. Raises `UsageError`, also if only the corpus determines the vocabulary
    size.
    """
    from assay.launch.prepare import threads_of
    from assay.launch.step_times import calibrate as time_steps
    from assay.optimizations import check_divided, resolve_run

    asked = configure(source, overrides, optimizations)
    check_divided(asked)
    estimate(source, *overrides, optimizations=optimizations)
    with predictable(asked, Home()) as known:
        run = resolve_run(known)
    for reason in time_steps([run], Home(), threads_of(run), seconds, lambda text, _: tell(text)).values():
        tell(f"the step was not timed: {reason}")
    return estimate(source, *overrides, optimizations=optimizations)


def estimate_rows(
    source: Source = None,
    *overrides: str,
    stacks: "Sequence[str]",
    device: str | None = None,
    machine: "Machine | None" = None,
) -> "dict[str, EveryRank]":
    """Predict one optimizer step as it is configured, and with each of several stacks in addition, as rows.

    Keys are ``configuration`` and the stacks. Ranks that only a stack divides leave the configuration without a row.
    Raises the errors of `estimate` for each stack, and for one that is given twice.
    """
    if len(set(stacks)) < len(stacks):
        twice = next(one for one in stacks if stacks.count(one) > 1)
        raise UsageError(f"{twice} is given twice; give each row once")

    def predict(*stack: str) -> "EveryRank":
        return estimate_every_rank(source, *overrides, optimizations=stack, device=device, machine=machine)

    # If a later row is refused, a text that an earlier one needed is removed again.
    with predictable(configure(source, overrides), Home()):
        rows = {stack: predict(stack) for stack in stacks}
        try:
            return {"configuration": predict(), **rows}
        except UsageError:
            return rows


def plan(
    source: Source = None,
    *overrides: str,
    optimizations: Stack = (),
    gpu: str,
    nodes: int = 1,
    gpus_per_node: int = 8,
) -> "PlannedStep":
    """Plan one optimizer step on absent machines: `nodes` nodes with `gpus_per_node` GPUs each.

    `gpu` is ``a100``, ``h100`` or ``h200``. Raises `UsageError` if the run cannot be divided so, or a plan cannot
    express it.
    """
    from assay.api.result_types import PlannedStep
    from assay.estimator.projection import project
    from assay.hardware.cluster import cluster

    there = cluster(gpu, nodes, gpus_per_node)
    with predictable(configure(source, overrides, optimizations), Home()) as run:
        return PlannedStep.from_value(project(run, there))


def inference(source: Source = None, *overrides: str, device: str = "a100", bits: int = 16) -> "Inference":
    """Predict inference on one device by its datasheet, with weights of 32, 16, 8 or 4 bits.

    Raises `UsageError` for an unknown device or size, and if only the corpus determines the vocabulary size.
    """
    from assay.estimator.inference import BITS, Inference
    from assay.hardware.devices import device as known

    if bits not in BITS:
        raise UsageError(f"weights have {' or '.join(map(str, BITS))} bits, and not {bits}")
    sheet = known(device)
    with predictable(configure(source, overrides), Home()) as run:
        return Inference(model=run.model, device=sheet, bits=bits)


def token_budget(
    source: Source = None,
    *overrides: str,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "TokenBudget":
    """Return a run's budget of tokens: of its corpus, of a step, of the whole run, and by parameter.

    The corpus is prepared if need be, and nothing is trained. Raises `UsageError` as a run would.
    """
    from assay.data.progress import silent
    from assay.launch.token_budget import token_budget as budget

    return budget(configure(source, overrides), home_of(home), on_progress or silent)


def accuracy(home: Home | Path | str | None = None) -> "AccuracyLedger":
    """Return the errors of predicted memory and time of all runs of a home, by device and by technique.

    Records are read, and nothing is written. Raises `UsageError` if the home cannot be read.
    """
    from assay.analysis.accuracy import accuracy as collect
    from assay.api.result_types import AccuracyLedger

    results = list(_results(home_of(home).checked()))
    found = collect([one for one in results if one is not None], results.count(None))
    return AccuracyLedger.from_value(found)


def write_accuracy(found: "AccuracyLedger", path: Path | str) -> Path:
    """Write the page of `found` and return its path. Raises `UsageError` and `StorageError` as other pages do."""
    from assay.report.accuracy import write_accuracy_page

    return write_accuracy_page(found, Path(path))


def _results(home: Home) -> "Iterator[RunResult | None]":
    """Yield the record of each run that has ended, oldest first; None for one that cannot be read or checked."""
    from assay.errors import UsageError
    from assay.store.run_folder import RunFolder

    if not home.runs.is_dir():
        return
    for path in sorted(home.runs.iterdir()):
        if path.name.startswith(".") or not path.is_dir():
            continue
        try:
            result, doubt = RunFolder(path).result_and_doubt()
        except (UsageError, OSError):
            yield None
            continue
        if result is not None:
            yield None if doubt else result
