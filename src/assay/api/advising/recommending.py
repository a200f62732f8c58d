"""A recommendation from ledgers of all stacks, steps that are timed first, and a comparison that verifies it."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.advise.advice import Advice
from assay.api.advising.known import loss_changes, machine_here, machine_of
from assay.api.advising.over_ranks import cluster_of, placed
from assay.api.advising.result import LayoutRecommendation, Recommendation, values_of
from assay.api.advising.verification import verified
from assay.api.configuration import Source, configure, predictable, title_of
from assay.api.fitting import budget_of
from assay.config.home import Home, home_of
from assay.config.run import Run
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.advise.problem import Limits
    from assay.config.run import ResolvedRun
    from assay.hardware import Machine

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
    run = _resolved(source, overrides, device, place)
    here, name = _where(device, machine, run, None if calibrate is None else (place, on_progress))
    limits = _limits(run, here, budget, of or _limited(device), max_loss_change)
    if there is not None:
        return placed(run, here, there, limits, " ".join(_words(source, overrides, run)), (tokens, price))
    words, seconds = " ".join(_words(source, overrides)), 0.0 if machine else calibrate or 0.0
    found = _searched(run, here, limits, _Asked(words, name, device is not None, seconds, place, on_progress))
    study = verified(found, place, on_progress) if verify else None
    return Recommendation(**values_of(found, Advice), verified=study, tokens=tokens, price=price)


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

    if device is None and machine is None and asked is not None:
        home, tell = asked
        machine = machine_here(home, threads_of(run), tell)
    name = device or ("" if machine is None else device_of(machine))
    return machine or machine_of(device), name


def _searched(run: "ResolvedRun", here: "Machine", limits: "Limits", asked: _Asked) -> Advice:
    """Search all stacks. Their ledgers are gone before garbage is collected again."""
    from assay.estimator.uncollected import without_collection

    with without_collection():
        return _advised(run, here, limits, asked)


def _advised(run: "ResolvedRun", here: "Machine", limits: "Limits", asked: _Asked) -> Advice:
    """Search all stacks, with the front-runners timed first if there is time for that."""
    from assay.advise.calibration import calibrated
    from assay.advise.checking import checked
    from assay.advise.problem import Problem
    from assay.advise.recommend import advice
    from assay.launch.prepare import threads_of

    problem = Problem(run, here, limits)
    if asked.seconds > 0:
        here = calibrated(problem, asked.home, threads_of(run), asked.seconds, asked.tell)
    if not asked.absent:
        ranking = problem.rank(here, of_timed=asked.seconds > 0)
        return advice(problem, ranking, asked.device, asked.words, absent=False)
    found = checked(problem, lambda: problem.rank(here), asked.device, asked.tell)
    return advice(problem, found.ranking, asked.device, asked.words, absent=True, checked=found.by)


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


def _resolved(source: Source, overrides: tuple[str, ...], device: str | None, home: Home) -> "ResolvedRun":
    """Return the run whose techniques are searched. A text is prepared if the vocabulary depends on it."""
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
        return resolve_run(run if device is None else run.model_copy(update={"device": "cuda"}))


def _words(source: Source, overrides: tuple[str, ...], planned: "ResolvedRun | None" = None) -> list[str]:
    """Return a configuration as words of a command; a `planned` one also names a vocabulary that its text decided."""
    named = [title_of(source) if isinstance(source, Run) else str(source)] if source is not None else ["demo"]
    if planned is not None and configure(source, overrides).with_vocabulary().model.vocab_size is None:
        overrides = (*overrides, f"model.vocab_size={planned.model.vocab_size}")
    return [shlex.quote(word) for word in (*named, *overrides)]
