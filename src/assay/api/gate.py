"""A memory gate: lock what a training step takes, and check later that it has not grown."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.base import absolute
from assay.errors import UsageError, short_text

if TYPE_CHECKING:
    from assay.analysis.step_ratio import GateTimes
    from assay.launch.gate import GateAnswer, StepCheck, Tolerance
    from assay.launch.turns import BaseTree, TimedPair
    from assay.records.gated import AbsentFigures, GateLock

Tell = Callable[[str], None]
CUDA = "cuda"
"""The GPU of this machine."""
PAIRS, LEAST_PAIRS = 5, 3
"""Pairs of processes of which an interval of times is made."""


def gate_update(
    steps: Sequence[str] = (),
    devices: Sequence[str] = (),
    *,
    lock: Path | str | None = None,
    folder: Path | str | None = None,
    on_progress: Tell = lambda text: None,
) -> "GateAnswer":
    """Lock the figures of steps, and return them beside those that were locked before.

    `steps` are functions of your own, ``train.py:build``, each of which returns a function that trains once. A file is
    found from `folder`, by default the working directory. `devices` are ``cpu`` and GPUs that may be absent; by default
    those that a step is locked for, else ``cpu``. Without steps all of the lock are locked anew. Raises `UsageError`.
    """
    from assay.launch.gate import GateAnswer, write_lock
    from assay.records.gated import GateLock

    place, path, known = _opened(steps, lock, folder, GateLock())
    checks = tuple(_checks(steps, devices, place, path, known, None, on_progress))
    write_lock(path, known.with_steps(tuple(one.to_lock for one in checks)))
    return GateAnswer(path, checks, updated=True)


def gate_check(
    steps: Sequence[str] = (),
    devices: Sequence[str] = (),
    *,
    allow: str | None = None,
    strict: bool = False,
    lock: Path | str | None = None,
    folder: Path | str | None = None,
    on_progress: Tell = lambda text: None,
) -> "GateAnswer":
    """Compare steps with what is locked of them.

    Arguments are those of `gate_update`. `allow` is a growth of bytes and FLOPs, ``1%``, or of bytes, ``1MB``. With
    `strict` growth fails also under another version of torch than that of the lock. Raises `UsageError`, also for a
    step that is not locked.
    """
    from assay.launch.gate import GateAnswer

    tolerance = tolerance_of(allow)
    place, path, known = _opened(steps, lock, folder, None)
    return GateAnswer(path, tuple(_checks(steps, devices, place, path, known, tolerance, on_progress)), strict=strict)


def gate_time(
    steps: Sequence[str] = (),
    *,
    base: str,
    device: str | None = None,
    pairs: int = PAIRS,
    at_most: float | None = None,
    lock: Path | str | None = None,
    folder: Path | str | None = None,
    on_progress: Tell = lambda text: None,
) -> "GateTimes":
    """Time steps beside themselves at a commit of git, and return the ratios, each with a 95 % interval.

    `steps`, `lock` and `folder` are those of `gate_update`; by default all steps of the lock. `base` names the commit,
    which is checked out elsewhere for as long as this takes. Each of at least three `pairs` is two processes that take
    turns. `device` is ``cpu`` or ``cuda``, by default the one that a step chooses. `at_most` is the largest ratio that
    passes, which decides the answer's `exit_code`. Raises `UsageError`.
    """
    from assay.analysis.step_ratio import GateTimes, step_ratio
    from assay.launch.turns import base_tree, check_in_base
    from assay.records.gated import GateLock

    _check_device(device)
    if pairs < LEAST_PAIRS:
        raise UsageError(f"an interval needs at least {LEAST_PAIRS} pairs of processes")
    if at_most is not None and not 0 < at_most < float("inf"):
        raise UsageError(f"at most {at_most} is no ratio of times; write one such as 1.1")
    place, _, known = _opened(steps, lock, folder, GateLock())
    names = steps or tuple(dict.fromkeys(one.step for one in known.steps))
    with base_tree(base, place) as tree:
        for name in names:
            check_in_base(name, place, tree)
        ratios = [step_ratio(one, tuple(_pairs(one, place, tree, device, pairs, on_progress))) for one in names]
    return GateTimes(tree.title, tuple(ratios), at_most)


def _pairs(
    step: str, folder: Path, base: "BaseTree", device: str | None, count: int, tell: Tell
) -> "Iterator[TimedPair]":
    """Time a step in several pairs of processes. Raises `UsageError` if it does not use the GPU that it should."""
    from assay.launch.turns import timed_pair
    from assay.records.gated import CPU

    variables = {"CUDA_VISIBLE_DEVICES": ""} if device == CPU else {}
    for number in range(count):
        tell(f"{step}: pair {number + 1} of {count}")
        pair = timed_pair(step, folder, base, number, variables)
        if device == CUDA and pair.device == CPU:
            raise UsageError(f"{step} does not use a GPU here; give --device cpu, or see `assay doctor`")
        yield pair


def _check_device(device: str | None) -> None:
    """Raise `UsageError` for a device on which no time can be measured."""
    from assay.absent.gpus import IN_PLACE
    from assay.records.gated import CPU

    if os.environ.get(IN_PLACE):
        raise UsageError("times on an absent GPU mean nothing; run this without assay absent")
    if device not in (None, CPU, CUDA):
        raise UsageError(
            f"{short_text(device)} is no device of this machine, and times of an absent GPU mean nothing; give "
            f"--device {CPU}, or {CUDA} for the GPU that is here"
        )


def tolerance_of(allow: str | None) -> "Tolerance":
    """Return the growth that a text such as ``1%`` or ``1MB`` allows. Raises `UsageError` for another."""
    from assay.launch.gate import Tolerance
    from assay.units import parse_bytes

    try:
        if allow is not None and allow.endswith("%"):
            return Tolerance(fraction=_positive(float(allow[:-1])) / 100)
        return Tolerance(nbytes=0 if allow is None else parse_bytes(allow))
    except (ValueError, UsageError):
        raise UsageError(f"{allow!r} is no growth; write a share or an amount, as in 1% or 1MB") from None


def _positive(number: float) -> float:
    if not 0 <= number < float("inf"):
        raise ValueError
    return number


def _opened(
    steps: Sequence[str], lock: Path | str | None, folder: Path | str | None, empty: "GateLock | None"
) -> "tuple[Path, Path, GateLock]":
    """Return the folder of the steps, the path of the lock, and its content; `empty` if there may be none."""
    from assay.launch.gate import lock_path, read_lock

    place = absolute(Path.cwd() if folder is None else folder)
    path = lock_path(steps, place) if lock is None else place / lock
    known = empty if empty is not None and steps and not path.exists() else read_lock(path)
    return (place if steps else path.parent), path, known


def _checks(
    steps: Sequence[str],
    devices: Sequence[str],
    folder: Path,
    path: Path,
    known: "GateLock",
    tolerance: "Tolerance | None",
    tell: Tell,
) -> "Iterator[StepCheck]":
    """Yield each step for each device beside what is locked of it; without a tolerance it may be new."""
    from assay.launch.gate import StepCheck, Tolerance, name_in_lock, step_figures
    from assay.records.gated import CPU, LockedStep

    locked = [(one.step, one.step, one.device) for one in known.steps if not devices or one.device in devices]
    named = [(one, name_in_lock(one, folder, path)) for one in steps]
    if steps:
        held = {name: [device for _, one, device in locked if one == name] for _, name in named}
        locked = [(given, name, on) for given, name in named for on in devices or held[name] or [CPU]]
    for given, name, device in locked:
        before = known.of(name, device)
        if before is None and tolerance is not None:
            raise UsageError(
                f"{name} is not locked for {device} in {path}; lock it: assay gate update {given} --device {device}"
            )
        tell(f"{name} on {device}")
        found = step_figures(given, device, folder, tell)
        now = LockedStep(step=name, device=device, found=found, absent=_run_absent(given, device, folder, tell))
        yield StepCheck(now, before, tolerance or Tolerance())


def _run_absent(step: str, device: str, folder: Path, tell: Tell) -> "AbsentFigures | None":
    """Run a step on an absent GPU where the environment for it is named; None elsewhere."""
    from assay.api.absent_gpu import gpu_peak
    from assay.api.configuration import own_source
    from assay.launch.gate import ABSENT_FIGURES
    from assay.launch.gpu_peak import PYTHON
    from assay.records.gated import CPU, AbsentFigures

    if device == CPU or not os.environ.get(PYTHON):
        return None
    found = gpu_peak(own_source(step, folder), device=device, way="absent", on_progress=tell)
    if found.exhausted:
        raise UsageError(f"{step} does not fit {device}, so its figures there are no peak of it: {found.exhausted}")
    figures = {one: getattr(found, one) for one in ABSENT_FIGURES}
    return AbsentFigures(torch=found.torch, device=found.described.name, figures=figures)
