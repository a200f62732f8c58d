"""The losses of a row, held step by step against the baseline's at the same seed.

A row trains on the weights and batches of its baseline, so its losses follow from what it promises (`Numerics`):

- EXACT: each loss is the baseline's to the last bit. Where two equal baselines part, as on a GPU, a row is held as if
  it were REASSOCIATED.
- REASSOCIATED: the relative difference is at most `ROUNDING` in the first `FIRST_STEPS` steps. In every step it may be
  `DRIFT_FACTOR` times the drift, which is the largest difference so far that nudged weights made (`studies.drift`).
  Without a measured drift, later steps are not held.
- LOSSY: at most `LOSSY`, or `DRIFT_FACTOR` times the drift, in the first steps; and not equal, for rounding shows.
- DIFFERENT_TRAINING: no bound; equal losses are suspect.

A validation loss is held like the training loss of the step before it. The bounds come from measurements of honest
techniques, in `docs/measured/losses.md`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import NamedTuple, Self

from assay.optimizations import Numerics
from assay.runs.record import Status
from assay.studies.design import AGAIN
from assay.studies.drift import FIRST_STEPS, draws
from assay.studies.record import CellResult, ComparisonRecord
from assay.units import format_steps

ROUNDING = 1e-4
"""Relative."""
LOSSY = 0.02
"""Relative."""
DRIFT_FACTOR = 3.0

_Loss = float | None
"""None where it is not finite."""


class Pair(NamedTuple):
    """One loss of a run and the baseline's at the same seed and step."""

    what: str
    """For instance ``"the training loss of step 7"``; steps count from 0, as in a run's events."""
    step: int
    loss: _Loss
    baseline: _Loss

    @property
    def difference(self) -> float:
        """Relative; infinite where one of the two is not finite."""
        if self.loss == self.baseline:
            return 0.0
        if self.loss is None or self.baseline is None:
            return inf
        return abs(self.loss - self.baseline) / (abs(self.baseline) or 1.0)


class Parting(NamedTuple):
    """The first loss of a run that is farther from the baseline's than its bound."""

    seed: int
    pair: Pair
    bound: float
    """Relative; 0 asks for equality to the last bit."""

    def __str__(self) -> str:
        what, _, loss, baseline = self.pair
        if loss is None or baseline is None:
            numbers = ["not finite" if one is None else f"{one:.6g}" for one in (loss, baseline)]
            said = f"{numbers[0]}, and the baseline's is {numbers[1]}"
        elif self.bound == 0:
            said = f"{loss!r}, and the baseline's is {baseline!r}; they should be equal to the last bit"
        else:
            off, bound = (f"{100 * one:.2g} %" for one in (self.pair.difference, self.bound))
            said = f"{loss:.6g}, and the baseline's is {baseline:.6g}; they differ by {off}, and the bound is {bound}"
        return f"{what} at seed {self.seed} is {said}"


@dataclass(frozen=True)
class Yardstick:
    """What a comparison's losses are held against, and how far rounding alone takes them."""

    baselines: Mapping[int, CellResult]
    """By seed."""
    repeats: bool | None
    """Whether two equal baselines had equal losses; None where there are not two."""
    drift: tuple[float, ...]
    """By step: the largest relative difference so far that nudged weights made. Empty where it was not measured."""
    draws: bool
    """Whether masks or routes are drawn; then rounding is not all that parts two runs."""

    @classmethod
    def of(cls, record: ComparisonRecord) -> Self:
        """The yardstick of one comparison."""
        baselines = by_seed(record.references)
        again = [
            pair
            for one in record.of(AGAIN)
            if one.cell.seed in baselines
            for pair in pairs(one, baselines[one.cell.seed])
        ]
        return cls(
            baselines=baselines,
            repeats=not any(pair.difference for pair in again) if again else None,
            drift=_drift(record.nudged, baselines),
            draws=draws(record.base),
        )

    def bound(self, promise: Numerics, step: int) -> float:
        """The largest relative difference that a promise allows at a step; infinite where there is no bound."""
        if promise is Numerics.EXACT and self.repeats:
            return 0.0
        first = step < FIRST_STEPS
        if promise is Numerics.DIFFERENT_TRAINING or (promise is Numerics.LOSSY and not first):
            return inf
        if (self.draws or not first) and not self.drift:
            return inf
        return max(LOSSY if promise is Numerics.LOSSY else ROUNDING, DRIFT_FACTOR * self._drift_at(step))

    def _drift_at(self, step: int) -> float:
        """The first steps share their largest drift: one that crosses zero must not make a bound of nothing."""
        if step < FIRST_STEPS:
            return max(self.drift[:FIRST_STEPS], default=0.0)
        return self.drift[step] if step < len(self.drift) else inf

    def partings(self, promise: Numerics, cells: Iterable[CellResult]) -> list[Parting]:
        """First loss beyond its bound, for each cell that has one. A cell that was stopped is held as far as it got."""
        found = []
        for one in cells:
            for pair in self._held(promise, one):
                bound = self.bound(promise, pair.step)
                if pair.difference > bound:
                    found.append(Parting(one.cell.seed, pair, bound))
                    break
        return found

    def _held(self, promise: Numerics, one: CellResult) -> Iterator[Pair]:
        """Pairs of losses that the promise speaks of.

        A baseline that diverges bounds nothing but EXACT rows, and 16 bits may overflow where 32 do not.
        """
        baseline = self.baselines.get(one.cell.seed)
        if baseline is None:
            return
        may_diverge = promise is Numerics.LOSSY or baseline.result.status is Status.DIVERGED
        for pair in pairs(one, baseline):
            finite = pair.loss is not None and pair.baseline is not None
            if finite or promise is Numerics.EXACT or not may_diverge:
                yield pair

    def equal_seeds(self, cells: Iterable[CellResult]) -> list[int]:
        """Seeds at which the first losses are the baseline's to the last bit."""
        return equal_seeds(cells, self.baselines)


def by_seed(cells: Iterable[CellResult]) -> dict[int, CellResult]:
    """The first cell of each seed that has a loss."""
    found: dict[int, CellResult] = {}
    for one in cells:
        if one.curve.train_loss:
            found.setdefault(one.cell.seed, one)
    return found


def pairs(one: CellResult, other: CellResult) -> list[Pair]:
    """The losses that two runs both have, by step. Of a step, training stands before validation."""
    trained = zip(_train_losses(one), _train_losses(other), strict=False)
    found = [Pair(f"the training loss of step {step}", step, *both) for step, both in enumerate(trained)]
    known = dict(other.curve.evaluations)
    found += [
        Pair(f"the validation loss after {format_steps(done)}", max(done - 1, 0), loss, known[done])
        for done, loss in one.curve.evaluations
        if done in known
    ]
    return sorted(found, key=lambda pair: pair.step)


def equal_seeds(cells: Iterable[CellResult], others: Mapping[int, CellResult]) -> list[int]:
    """Seeds at which the losses of the first steps are those of `others` to the last bit."""
    return sorted({one.cell.seed for one in cells if one.cell.seed in others and _equal(one, others[one.cell.seed])})


def _equal(one: CellResult, other: CellResult) -> bool:
    differences = [pair.difference for pair in pairs(one, other) if pair.step < FIRST_STEPS]
    return bool(differences) and not any(differences)


def _train_losses(one: CellResult) -> tuple[_Loss, ...]:
    """By step. A run that diverges in its gradients ends with a loss that is finite; the next step has none."""
    losses = one.curve.train_loss
    ended = one.result.status is Status.DIVERGED and losses and losses[-1] is not None
    return (*losses, None) if ended else losses


def _drift(nudged: CellResult | None, baselines: Mapping[int, CellResult]) -> tuple[float, ...]:
    baseline = baselines.get(nudged.cell.seed) if nudged else None
    if nudged is None or baseline is None:
        return ()
    trained = zip(_train_losses(nudged), _train_losses(baseline), strict=False)
    return tuple(accumulate((Pair("", 0, *both).difference for both in trained), max))


def seeds_text(seeds: Sequence[int]) -> str:
    """``"seed 0"``, ``"seeds 0, 1"``."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
