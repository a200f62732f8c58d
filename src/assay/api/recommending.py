"""Search of settings and of techniques that fit into some memory: by ledgers, timed steps and short runs."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.advise.advice import Advice
from assay.api.configuration import Source, Stack, configure, on_device, predictable, title_of
from assay.api.result_types import LayoutRecommendation, Recommendation, StudyResult
from assay.api.training import loss_changes
from assay.config.home import Home, home_of
from assay.config.run import Run
from assay.errors import UsageError
from assay.units import format_bytes

if TYPE_CHECKING:
    from assay.advise.problem import Limits
    from assay.config.run import ResolvedRun
    from assay.estimator.capacity import Capacity, Fitting, Largest
    from assay.hardware import Machine
    from assay.hardware.cluster import Cluster

_CAPACITY_STEPS = 3
"""Steps of a run that verifies an answer."""


def capacity(
    source: Source = None,
    *overrides: str,
    memory_bytes: int | None = None,
    of: str | None = None,
    device: str | None = None,
    optimizations: Stack = (),
    verify: bool = False,
    machine: "Machine | None" = None,
    home: Home | Path | str | None = None,
    on_progress: Callable[[str], None] = lambda message: None,
) -> "Capacity":
    """Find the largest batch, context, depth and width of a run whose step stays within some memory, each alone.

    Memory means tensors and library scratch, beyond what a started process holds. It is that of the whole process or
    device if `of` is ``process`` or ``device``. `device` names a GPU that may be absent; by default its whole memory is
    the budget. With `verify`, each answer trains for three steps, and its peak is measured. Raises `UsageError` if the
    run cannot be predicted, for an impossible budget or device, and if nothing fits.
    """
    from assay.estimator.capacity import Capacity, Fitting
    from assay.estimator.capacity import capacity as found_by_ledger
    from assay.estimator.device_memory import need_of
    from assay.hardware.rates import known_machine
    from assay.launch.prepare import threads_of

    place = home_of(home)
    budget = budget_of(memory_bytes, device)
    run = configure(source, overrides, optimizations)
    if device is not None:
        if verify:
            raise UsageError(f"{device} may be absent, so nothing can be trained there; leave out --verify or --device")
        run, machine = on_device(run, device)
    limited = of or _limited(device)
    need_of(limited)
    with predictable(run, place) as known:
        found = found_by_ledger(known, budget, machine or known_machine(place, threads_of(known)), limited)
    largest = (_fitting(known, one, place, on_progress) if verify else Fitting(largest=one) for one in found)
    return Capacity(largest, budget, limited)


def budget_of(memory_bytes: int | None, device: str | None) -> int:
    """Return the budget in bytes: the one that is given, else all memory of a device.

    Raises `UsageError` if neither is given, or a budget is not positive or more than the device has.
    """
    from assay.hardware.devices import device as known

    there = None if device is None else known(device)
    if memory_bytes is None and there is not None:
        return there.memory_bytes
    if memory_bytes is None:
        raise UsageError("a budget is missing; give --memory, such as 8GB, or name a GPU with --device")
    if memory_bytes < 1:
        raise UsageError(f"a budget of {memory_bytes} bytes is not possible; give an amount such as 8GB")
    if there is not None and memory_bytes > there.memory_bytes:
        asked, has = format_bytes(memory_bytes), format_bytes(there.memory_bytes)
        raise UsageError(
            f"a {there.name} has {has} for torch, and not {asked}; leave out --memory, or give at most that"
        )
    return memory_bytes


def _fitting(run: "Run", one: "Largest", home: Home, tell: Callable[[str], None]) -> "Fitting":
    from assay.api.training import train
    from assay.estimator.capacity import Fitting
    from assay.records.status import Status

    if one.value is None:
        return Fitting(largest=one)
    tell(f"training {_CAPACITY_STEPS} steps with {one.key}={one.value}")
    short = ("warmup_steps=1", "eval_interval=0", "eval_batches=1", "check_values=false", f"steps={_CAPACITY_STEPS}")
    result = train(run, *(f"training.{change}" for change in short), f"{one.key}={one.value}", home=home)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    memory = result.memory
    failure = "" if result.status is Status.DONE else f"{result.status}: {result.reason}"
    if memory.tensors_peak_bytes is None:
        return Fitting(largest=one, failure=failure or "its peak was not measured")
    measured = memory.tensors_peak_bytes + (memory.library_scratch_bytes or 0)
    return Fitting(largest=one, measured_bytes=measured, failure=failure)


def machine_of(device: str | None) -> "Machine":
    """Return an absent machine with the rates of its datasheet, or without a name one that only counts arithmetic."""
    from assay.advise.advice import counting
    from assay.hardware.detect import detect
    from assay.hardware.devices import absent_machine

    return counting(detect()) if device is None else absent_machine(device)


_GPUS_PER_NODE = 8


def cluster_of(gpus: int | None, gpus_per_node: int | None, device: str | None, of: str | None) -> "Cluster | None":
    """Return the cluster of so many GPUs of `device`; None for one GPU, or if no number is given.

    Raises `UsageError` for an impossible number, a missing device, and memory that a plan does not know.
    """
    from assay.hardware.cluster import cluster

    if gpus is None:
        if gpus_per_node is not None:
            raise UsageError("--gpus-per-node is of several GPUs; give their number with --gpus")
        return None
    if gpus < 1:
        raise UsageError(f"{gpus} GPUs are not possible; give at least one")
    if device is None:
        raise UsageError("GPUs are predicted from their datasheet; name them with --device, such as a100")
    each = _GPUS_PER_NODE if gpus_per_node is None else gpus_per_node
    if each < 1 or (gpus > each and gpus % each):
        raise UsageError(f"{gpus} GPUs do not fill nodes of {each}; choose --gpus-per-node so that it divides {gpus}")
    if gpus == 1:
        return None
    if of is not None:
        raise UsageError("a plan counts the tensors of a rank, and no other memory; leave out --of or --gpus")
    return cluster(device, max(1, gpus // each), min(gpus, each))


def place_layouts(
    run: "ResolvedRun",
    here: "Machine",
    there: "Cluster",
    limits: "Limits",
    words: str,
    training: tuple[float | None, float | None],
) -> LayoutRecommendation:
    """Search the layouts of a step. `here` is one device of the cluster, with the rates of its datasheet.

    `training` has the tokens of a whole training and the price of an hour of one GPU.
    """
    from assay.advise.layouts import layout_advice
    from assay.estimator.estimate import without_collection

    with without_collection():
        found = layout_advice(run, here, there, limits, words)
    tokens, price = training
    return LayoutRecommendation.from_value(found, tokens=tokens, price=price)


_VERIFIED, _STEPS = 3, 34
"""Stacks that a verification compares with the configuration, and steps of its runs."""


def verify_advice(found: Advice, home: Home, tell: Callable[[str], None]) -> StudyResult | None:
    """Compare the first stacks with the configuration in short runs; None if none of them adds anything."""
    from assay.api.study import compare

    points = (found.recommended, *found.frontier)
    stacks = list(dict.fromkeys(one.title for one in points if one.stack))[:_VERIFIED]
    if not stacks:
        return None
    tell(f"comparing {len(stacks)} stacks with the configuration in runs of {_STEPS} steps")
    steps = min(_STEPS, found.run.training.steps)
    short = {"steps": steps, "warmup_steps": min(5, steps - 1), "eval_interval": 0, "eval_batches": 2}
    changes = [f"training.{key}={value}" for key, value in short.items()]
    compared = compare(found.run.asked(), *changes, treatments=stacks, seeds=1, home=home)
    if compared.interrupted:
        raise KeyboardInterrupt
    return compared


CALIBRATION_SECONDS = 90.0
"""Time for the stacks that an answer depends on: some twenty plain ones of a small model, and two compiled ones."""
MAX_LOSS_CHANGE = 0.01
"""Largest change of the loss by default, in a like run."""


def recommend(
    source: Source = None,
    *overrides: str,
    memory_bytes: int | None = None,
    of: str | None = None,
    device: str | None = None,
    gpus: int | None = None,
    gpus_per_node: int | None = None,
    tokens: float | None = None,
    price: float | None = None,
    max_loss_change: float | None = MAX_LOSS_CHANGE,
    calibrate: float | None = None,
    verify: bool = False,
    machine: "Machine | None" = None,
    home: Home | Path | str | None = None,
    on_progress: Callable[[str], None] = lambda message: None,
) -> Recommendation | LayoutRecommendation:
    """Find the fastest stack of techniques and micro-batches whose step stays within some memory.

    `memory_bytes`, `of` and `device` are those of `capacity`. Without a device nothing is asked of this machine, and
    stacks are ranked by arithmetic. Front-runners are timed here for `calibrate` seconds, if that or `verify` is given,
    which trains the first three. A lossy technique may change the loss by `max_loss_change`; None allows all. Several
    `gpus` have a layout. A whole training has so many `tokens`, and an hour of one device this `price`. Raises
    `UsageError`, also if nothing fits.
    """
    there = cluster_of(gpus, gpus_per_node, device, of)
    place, budget = home_of(home), budget_of(memory_bytes, device)
    _check(max_loss_change, calibrate, tokens, price)
    _check_here({"--verify": verify, "--calibrate": calibrate}, device)
    calibrate = CALIBRATION_SECONDS if verify and calibrate is None else calibrate
    _check_hours(tokens, bool(device or machine or calibrate is not None))
    with _resolved(source, overrides, device, place) as run:
        here, name = _where(device, machine, run, None if calibrate is None else (place, on_progress))
        limits = _limits(run, here, budget, of or _limited(device), max_loss_change)
        if there is not None:
            return place_layouts(run, here, there, limits, " ".join(_words(source, overrides, run)), (tokens, price))
        words, seconds = " ".join(_words(source, overrides)), 0.0 if machine else calibrate or 0.0
        found = _searched(run, here, limits, _Asked(words, name, device is not None, seconds, place, on_progress))
    study = verify_advice(found, place, on_progress) if verify else None
    return Recommendation.from_value(found, verified=study, tokens=tokens, price=price)


@dataclass(frozen=True)
class _Asked:
    """A question beside its run and limits."""

    words: str
    """The configuration in a command."""
    device: str
    """Name of the device; empty if none was named and none is asked."""
    absent: bool
    seconds: float
    """Time for steps of front-runners; 0: none are timed."""
    home: Home
    tell: Callable[[str], None]


def _where(
    device: str | None,
    machine: "Machine | None",
    run: "ResolvedRun",
    asked: tuple[Home, Callable[[str], None]] | None,
) -> "tuple[Machine, str]":
    """Return the machine of an answer, and its name; without a device, this one has a name only if it is `asked`."""
    from assay.analysis.catalogue import device_of
    from assay.launch.prepare import threads_of
    from assay.launch.rates import measured_machine

    if device is None and machine is None and asked is not None:
        home, tell = asked
        machine = measured_machine(home, threads_of(run), tell=tell)
    name = device or ("" if machine is None else device_of(machine))
    return machine or machine_of(device), name


def _searched(run: "ResolvedRun", here: "Machine", limits: "Limits", asked: _Asked) -> Advice:
    """Search all stacks. Their ledgers are gone before garbage is collected again."""
    from assay.estimator.estimate import without_collection

    with without_collection():
        return _advised(run, here, limits, asked)


def _advised(run: "ResolvedRun", here: "Machine", limits: "Limits", asked: _Asked) -> Advice:
    """Search all stacks, with the front-runners timed first if there is time for that."""
    from assay.advise.problem import NothingFits, Problem
    from assay.advise.recommend import advice
    from assay.advise.trials import check_ranking, time_stacks
    from assay.launch.prepare import threads_of

    problem = Problem(run, here, limits)
    if asked.seconds > 0:
        here = time_stacks(problem, asked.home, threads_of(run), asked.seconds, asked.tell)
    try:
        if not asked.absent:
            ranking = problem.rank(here, of_timed=asked.seconds > 0)
            return advice(problem, ranking, asked.device, asked.words, absent=False)
        found = check_ranking(problem, lambda: problem.rank(here), asked.device, asked.tell)
    except NothingFits as refused:
        raise UsageError(f"{refused}{_look(refused.other, asked)}") from refused
    return advice(problem, found.ranking, asked.device, asked.words, absent=True, checked=found.by)


def _look(other: str, asked: _Asked) -> str:
    """Return the command that shows another training; empty without one."""
    device = f" --device {asked.device}" if asked.absent else ""
    return f": assay estimate {asked.words}{device} --with {other}" if other else ""


def _limits(run: "ResolvedRun", here: "Machine", budget: int, of: str, most: float | None) -> "Limits":
    from assay.advise.problem import Limits

    return Limits(budget, of, most, loss_changes(run, here))


def _limited(device: str | None) -> str:
    """Return which memory a budget limits where nothing is said."""
    return "tensors" if device is None else "device"


def _check(max_loss_change: float | None, calibrate: float | None, tokens: float | None, price: float | None) -> None:
    """Raise `UsageError` for a number that makes no sense."""
    if max_loss_change is not None and not 0 <= max_loss_change < 1:
        raise UsageError(
            f"a change of the loss by {max_loss_change:g} is no limit; give a fraction from 0 to 1, such as 0.01"
        )
    if calibrate is not None and not 0 <= calibrate <= 86400:
        raise UsageError(f"calibration cannot take {calibrate:g} seconds; give 0 to 86400")
    if tokens is not None and not 0 < tokens <= 1e20:
        raise UsageError(f"training on {tokens:g} tokens is not possible; give a number such as 1e9")
    if price is not None and not 0 <= price <= 1e20:
        raise UsageError(f"price={price:g} is not possible; give a number from 0 to 1e+20")
    if price is not None and tokens is None:
        raise UsageError("--price is of a training; say how many --tokens it has")


def _check_here(asked: Mapping[str, float | None], device: str | None) -> None:
    """Raise `UsageError` if an absent device should verify or be timed."""
    option = next((name for name, value in asked.items() if value), None)
    if option is not None and device is not None:
        raise UsageError(f"{device} may be absent, so nothing can be trained there; leave out {option} or --device")


def _check_hours(tokens: float | None, timed: bool) -> None:
    """Raise `UsageError` if a training should have hours, and no device has times."""
    if tokens is not None and not timed:
        raise UsageError("hours are of a device; name a GPU with --device, or time steps here with --calibrate 90")


@contextmanager
def _resolved(source: Source, overrides: tuple[str, ...], device: str | None, home: Home) -> "Iterator[ResolvedRun]":
    """Yield the run whose techniques are searched. A text is prepared if the vocabulary depends on it."""
    from assay.hardware.devices import device as device_named
    from assay.optimizations import resolve_run

    asked = configure(source, overrides)
    if asked.ranks > 1:
        raise UsageError("stacks are searched for one device; leave out ranks, and give --gpus")
    # Whatever is wrong is said before the text is prepared.
    resolve_run(asked)
    if device is not None:
        device_named(device)
    with predictable(asked, home) as run:
        yield resolve_run(run if device is None else run.model_copy(update={"device": "cuda"}))


def _words(source: Source, overrides: tuple[str, ...], planned: "ResolvedRun | None" = None) -> list[str]:
    """Return a configuration as words of a command; a `planned` one also names a vocabulary that its text decided."""
    named = [title_of(source) if isinstance(source, Run) else str(source)] if source is not None else ["demo"]
    if planned is not None and configure(source, overrides).with_vocabulary().model.vocab_size is None:
        overrides = (*overrides, f"model.vocab_size={planned.model.vocab_size}")
    return [shlex.quote(word) for word in (*named, *overrides)]
