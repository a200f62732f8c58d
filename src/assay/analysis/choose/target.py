"""Time to a target loss: the step, and the seconds of steps, from which the loss of a run stays at or below a target.

The crossing is sustained: a loss that falls below the target and rises above it again has not reached it. Validation
losses count if each run was evaluated at least `LEAST_EVALUATIONS` times; a step is then known to one interval between
evaluations. Otherwise the training loss counts, as its mean over the last twentieth of a run's steps. That lags behind
by half as many steps, and is not a loss on held-out text.

If the study states no target, each seed has its own. It is the control's last loss at this seed, plus the margin
within which losses count as the same. So the question is how long each row takes to be as good as the control.

Seconds are those of the first step, and of all further ones at the steady step time of the process. Start, evaluation
and checkpoints are not part of them. A run that never reaches the target is censored: it would need more steps than it
had, and nobody knows how many. A row with such a run has no ratio, because a mean over the others would flatter it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import exp, expm1, inf, log
from statistics import fmean
from typing import Literal, NamedTuple

from assay.analysis.caveats import ended_claims
from assay.analysis.comparison import Comparison
from assay.analysis.effects import Effect, typical
from assay.analysis.metrics.time import STEP_SECONDS
from assay.analysis.row import Row, usable
from assay.analysis.timed_processes import figure, rounds
from assay.records.status import Status
from assay.records.study import BASELINE, CellResult, Curve

LEAST_EVALUATIONS = 8
"""Fewest evaluations of each run from which a crossing is read."""
_WINDOW = 20
"""Part of a run's steps over which training losses are averaged: one twentieth."""

Basis = Literal["validation loss", "training loss"]
Losses = Sequence[tuple[int, float]]
"""Pairs of steps done and the loss; infinite if it is not finite."""


class Reached(NamedTuple):
    """One run, and when it reached the target for good."""

    seed: int
    within: int
    """Steps of the run."""
    steps: int | None
    """None if it did not."""
    seconds: float | None
    """None if it did not, or if times were not measured."""


class RowTarget(NamedTuple):
    """All runs of one row."""

    row: Row
    runs: tuple[Reached, ...]
    ratio: Effect | None
    """Change of the seconds against the control, or of the steps if times were not measured; paired by seed."""

    @property
    def censored(self) -> int:
        """Number of runs that did not reach the target."""
        return sum(one.steps is None for one in self.runs)

    @property
    def steps(self) -> float | None:
        """Mean number of steps; None if a run did not reach the target."""
        return None if self.censored or not self.runs else fmean(one.steps or 0 for one in self.runs)

    @property
    def seconds(self) -> float | None:
        """Geometric mean of the seconds; None if a run did not reach the target, or has no time."""
        known = [log(one.seconds) for one in self.runs if one.seconds]
        return exp(fmean(known)) if known and len(known) == len(self.runs) else None


class Targets(NamedTuple):
    """A target, and when each row reached it."""

    basis: Basis
    resolution: int
    """Largest number of steps between evaluations, or steps over which the training loss is averaged."""
    target: float | None
    """The loss that the study states; None if the control's last loss of each seed is the target."""
    rows: tuple[RowTarget, ...]
    """The control first."""


def targets(comparison: Comparison) -> Targets | None:
    """Return the time of each row to the target; None if the control has no losses."""
    record = comparison.record
    cells = {name: [one for one in record.of(name) if _tried(one)] for name in (BASELINE, *record.treatments)}
    every = [one for some in cells.values() for one in some]
    if not any(one.curve.train_loss or one.curve.evaluations for one in cells[BASELINE]):
        return None
    sampled = all(len(one.curve.evaluations) >= LEAST_EVALUATIONS for one in usable(every))
    basis: Basis = "validation loss" if sampled else "training loss"
    goals = _goals(comparison, cells[BASELINE], basis)
    kept, ended = rounds(usable(record.cells), record.rounds) if record.timed else {}, ended_claims(record)
    runs = {
        name: tuple(
            _reached(one, basis, goals[one.cell.seed], {} if name in ended else kept)
            for one in some
            if one.cell.seed in goals
        )
        for name, some in cells.items()
    }
    rows = [row for row in (comparison.baseline, *comparison.rows) if runs[row.treatment]]
    ratios = {row.treatment: _ratio(runs[BASELINE], runs[row.treatment], len(record.treatments)) for row in rows}
    found = tuple(
        RowTarget(row, runs[row.treatment], None if row.treatment == BASELINE else ratios[row.treatment])
        for row in rows
    )
    spacing = max((_spacing(one.curve, basis) for one in usable(every)), default=1)
    return Targets(basis, spacing, record.target_loss, found)


def sustained_step(losses: Losses, target: float) -> int | None:
    """Return the steps done from which all losses are at or below a target; None if the last one is not."""
    above = [at for at, (_, loss) in enumerate(losses) if not loss <= target]
    first = above[-1] + 1 if above else 0
    return losses[first][0] if first < len(losses) else None


def trailing(losses: Sequence[float | None], window: int) -> list[tuple[int, float]]:
    """Return the mean of the last `window` losses after each step that has as many; infinite if one is not finite."""
    sums = list(accumulate((loss or 0.0 for loss in losses), initial=0.0))
    missing = list(accumulate((loss is None for loss in losses), initial=0))
    return [
        (end, inf if missing[end] > missing[end - window] else (sums[end] - sums[end - window]) / window)
        for end in range(window, len(losses) + 1)
    ]


def _tried(one: CellResult) -> bool:
    """True if a run ended by itself: it finished, or it diverged and so never reaches a target."""
    return one.result.status in (Status.DONE, Status.BUDGET_REACHED, Status.DIVERGED)


def _losses(curve: Curve, basis: Basis) -> Losses:
    if basis == "validation loss":
        return [(step, inf if loss is None else loss) for step, loss in curve.evaluations]
    return trailing(curve.train_loss, _window(curve))


def _window(curve: Curve) -> int:
    return max(1, len(curve.train_loss) // _WINDOW)


def _spacing(curve: Curve, basis: Basis) -> int:
    """Steps between two evaluations, at most, or the window of the training loss."""
    if basis == "training loss":
        return _window(curve)
    steps = [0, *(step for step, _ in curve.evaluations)]
    return max(after - before for before, after in pairwise(steps))


def _goals(comparison: Comparison, control: Sequence[CellResult], basis: Basis) -> Mapping[int, float]:
    """Target loss of each seed."""
    stated, margin = comparison.record.target_loss, comparison.record.loss_margin
    found: dict[int, list[float]] = {}
    for one in usable(control):
        if losses := _losses(one.curve, basis):
            found.setdefault(one.cell.seed, []).append(losses[-1][1])
    if stated is not None:
        return {one.cell.seed: stated for one in comparison.record.cells}
    return {seed: fmean(losses) + margin for seed, losses in found.items()}


def _reached(one: CellResult, basis: Basis, target: float, kept: Mapping[int, Sequence[int]]) -> Reached:
    within = len(one.curve.train_loss) or one.result.steps
    steps = None if one.result.status is Status.DIVERGED else sustained_step(_losses(one.curve, basis), target)
    pace = None if one.wave not in kept else figure(STEP_SECONDS, one.result, kept[one.wave])
    if not steps or pace is None:
        return Reached(one.cell.seed, within, steps, 0.0 if steps == 0 and pace is not None else None)
    step = exp(pace)
    first = one.result.first_step_seconds or step
    return Reached(one.cell.seed, within, steps, first + (steps - 1) * step)


def _ratio(control: Sequence[Reached], treated: Sequence[Reached], comparisons: int) -> Effect | None:
    """Change of the time to the target, with an interval over seeds; None if a run of either is censored."""
    both = [*control, *treated]
    if any(one.steps is None for one in both):
        return None
    timed = all(one.seconds is not None for one in both)
    before, after = (_logs(some, timed=timed) for some in (control, treated))
    differences = [after[seed] - before[seed] for seed in sorted(after) if seed in before]
    if not differences:
        return None
    found = typical(differences, comparisons)
    mean, half = found.middle, found.half
    ends = None if half is None else (expm1(mean - half), expm1(mean + half))
    return Effect(
        change=expm1(mean),
        interval=ends,
        pairs=len(differences),
        equal=not any(differences),
        untold=found.reason,
    )


def _logs(runs: Sequence[Reached], *, timed: bool) -> dict[int, float]:
    """Mean logarithm of the time by seed: of seconds, or of steps."""
    found: dict[int, list[float]] = {}
    for seed, value in _times(runs, timed=timed):
        found.setdefault(seed, []).append(log(value))
    return {seed: fmean(logs) for seed, logs in found.items()}


def _times(runs: Sequence[Reached], *, timed: bool) -> Iterator[tuple[int, float]]:
    for one in runs:
        value = one.seconds if timed else one.steps
        if value:
            yield one.seed, float(value)
