"""Approach 1: the lower envelope of training curves by compute, and a power law through the sizes that reach it.

At each of many computes, evenly in log C, the run with the lowest loss gives the optimal N (Hoffmann et al. 2022,
section 3.1). Losses between the points of a curve are interpolated in logarithms. A compute counts only where the best
run is neither of the smallest size nor of the largest. At the ends the best size may be outside. It also needs two
sizes that have reached it. The bootstrap draws runs.

A loss in the middle of a training is that of a learning rate which has not decayed yet. The envelope of few lengths of
schedules is therefore too high. The paper trains each size with four lengths. Smooth the losses before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay.errors import UsageError
from assay.scaling.accounting import Accounting, accounting
from assay.scaling.approaches.frontier import Line, Optima, line, optima
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Floats, planned, read_points, run_names
from assay.units import format_count

_COMPUTES = 1500
"""Computes of the envelope, as in the paper."""


@dataclass(frozen=True)
class TrainingCurve:
    """Losses of one run by the tokens seen."""

    parameters: float
    tokens: Floats
    """Increasing."""
    loss: Floats
    counted: Floats | None = None
    """Training FLOPs so far as the run counts them, where they contradict 6·N·D."""

    @property
    def flops(self) -> Floats:
        """Training FLOPs so far, 6·N·D or as counted."""
        if self.counted is not None:
            return self.counted
        return np.asarray(FLOPS_PER_PARAMETER_AND_TOKEN * self.parameters * self.tokens)


@dataclass(frozen=True)
class Envelope:
    """The lowest loss at each compute, the size that has it, and the power laws through the sizes that count."""

    flops: Floats
    loss: Floats
    parameters: Floats
    counts: tuple[bool, ...]
    """Whether each compute counts for the power laws."""
    optima: Optima


def envelope(curves: Sequence[TrainingCurve], draws: int = 200, seed: int = 0) -> Envelope:
    """Fit approach 1 to training curves.

    Raises `UsageError` for curves that are no curves, fewer than three sizes, or an envelope of the ends alone.
    """
    for one in curves:
        _check(one)
    sizes = np.array([one.parameters for one in curves])
    if len(np.unique(sizes)) < 3:
        raise UsageError(f"the curves are of {len(np.unique(sizes))} sizes; an envelope needs three or more")
    flops = np.geomspace(min(one.flops[0] for one in curves), max(one.flops[-1] for one in curves), _COMPUTES)
    losses = np.array([_at(one, flops) for one in curves])
    lowest, best, counted = _envelope(losses, sizes)
    if len(np.unique(best[counted])) < 2:
        raise UsageError("the lowest losses are of the smallest and the largest size alone; add sizes between them")
    chance = np.random.default_rng(seed)
    picks = (chance.integers(0, len(curves), len(curves)) for _ in range(draws))
    drawn = [_line(losses[pick], sizes[pick], flops) for pick in picks]
    warning = (
        f"{counted.mean():.0%} of the computes count; at the others the best run is of the smallest or largest size."
    )
    best_sizes = optima(flops[counted], best[counted], drawn, [warning], _accounting(curves))
    return Envelope(flops, lowest, best, tuple(map(bool, counted)), best_sizes)


def _accounting(curves: Sequence[TrainingCurve]) -> Accounting:
    """Return how the points of all curves count FLOPs."""
    sizes = np.concatenate([np.full(len(one.tokens), one.parameters) for one in curves])
    tokens, flops = (np.concatenate([getattr(one, name) for one in curves]) for name in ("tokens", "flops"))
    return accounting(planned(parameters=sizes, tokens=tokens, counted_flops=flops))


def read_curves(path: Path, columns: str | None = None) -> list[TrainingCurve]:
    """Read curves from a CSV file; rows of one `run`, or else of one size, are a curve.

    Raises `UsageError` if the file cannot be read, lacks a column, or has an impossible number.
    """
    points = read_points(path, named=columns)
    counts = not accounting(points).plain
    named = run_names(path) or list(map(str, points.parameters))
    curves = []
    for name in dict.fromkeys(named):
        rows = points.where(np.array([one == name for one in named]))
        rows = rows.where(np.argsort(rows.tokens, kind="stable"))
        if len(np.unique(rows.parameters)) > 1:
            raise UsageError(f"{path}: run {name} has several sizes; give each run a name of its own")
        counted = rows.counted_flops if counts else None
        curves.append(TrainingCurve(float(rows.parameters[0]), rows.tokens, rows.loss, counted))
    return curves


def _at(curve: TrainingCurve, flops: Floats) -> Floats:
    """Return the loss of a run at each compute, infinite where it has none."""
    found = np.exp(np.interp(np.log(flops), np.log(curve.flops), np.log(curve.loss)))
    within = (curve.flops[0] * (1 - 1e-9) <= flops) & (flops <= curve.flops[-1] * (1 + 1e-9))
    return np.where(within, found, np.inf)


def _envelope(losses: Floats, sizes: Floats) -> tuple[Floats, Floats, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return the lowest loss at each compute, its size, and whether the compute counts."""
    best = sizes[np.argmin(losses, axis=0)]
    there = np.isfinite(losses)
    counts = (best > sizes.min()) & (best < sizes.max()) & (there.sum(axis=0) >= 2)
    return losses.min(axis=0), best, np.asarray(counts)


def _line(losses: Floats, sizes: Floats, flops: Floats) -> Line | None:
    """Return the line of one draw of runs; None if the ends alone have the lowest losses."""
    _, best, counted = _envelope(losses, sizes)
    return line(flops[counted], best[counted]) if len(np.unique(best[counted])) >= 2 else None


def _check(curve: TrainingCurve) -> None:
    name = f"the curve of {format_count(curve.parameters)} parameters"
    if len(curve.tokens) != len(curve.loss) or len(curve.tokens) < 2:
        raise UsageError(f"{name} needs two or more tokens, and a loss for each")
    values = np.concatenate([[curve.parameters], curve.tokens, curve.loss])
    if not np.all((values > 0) & np.isfinite(values)):
        raise UsageError(f"{name} has a size, tokens or a loss that is not positive")
    if np.any(np.diff(curve.tokens) <= 0):
        raise UsageError(f"the tokens of {name} do not increase; sort it, and leave copies out")
