"""The losses of a row, held step by step against the baseline's at the same seed.

A row trains on the weights and batches of its baseline, so its losses follow from what it promises (`Numerics`):

- EXACT: each loss is the baseline's to the last bit. Where two equal baselines part, as on a GPU, a row is held as if
  it were REASSOCIATED.
- REASSOCIATED: the relative difference is at most `ROUNDING` in the first `FIRST_STEPS` steps. In every step it may be
  `DRIFT_FACTOR` times the drift, which is the largest difference so far that nudged weights made at the same seed
  (`studies.drift`). Chaos sets in some steps earlier in one run than in another, so the drift is read `ONSET` steps
  later. Where no drift was measured, only the first steps are held, until the baseline's loss spikes.
- LOSSY: at most `LOSSY`, or `DRIFT_FACTOR` times the drift, in the first steps, until the baseline's loss spikes; and
  not equal, since rounding must show.
- DIFFERENT_TRAINING: no bound; equal losses are suspect.

A validation loss is held like the training loss of the step before it. The bounds come from measurements of honest
techniques, in `docs/measured/losses.md`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Self

from assay.analysis.loss_pairs import Pair, by_seed, equal_seeds, largest_so_far, pairs
from assay.config.run import Run
from assay.optimizations import Numerics, numerics_of
from assay.runs.record import Status
from assay.studies.design import AGAIN
from assay.studies.drift import FIRST_STEPS
from assay.studies.record import CellResult, ComparisonRecord

ROUNDING = 3e-5
"""Relative. A hundred times the worst honest technique, since large models and GPUs were not measured."""
LOSSY = 0.05
"""Relative. Four times the worst honest technique."""
DRIFT_FACTOR = 3.0
ONSET = 20
"""Steps."""
SPIKE = 1.05
"""A loss that rises to so many times its lowest is of a rate that is too high; it tears roundings apart at once."""


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
    drifts: Mapping[int, tuple[float, ...]]
    """By seed and step: the largest relative difference so far that nudged weights made."""
    masks: bool
    """Whether dropout draws masks. A technique may draw others, which part two runs by more than rounding."""

    @classmethod
    def of(cls, record: ComparisonRecord) -> Self:
        """The yardstick of one comparison."""
        baselines = by_seed(record.references)
        nudged = {seed: one for seed, one in by_seed(record.nudged).items() if seed in baselines}
        again = [one for one in record.of(AGAIN) if one.cell.seed in baselines]
        repeated = [pair for one in again for pair in pairs(one, baselines[one.cell.seed])]
        return cls(
            baselines=baselines,
            repeats=not any(pair.difference for pair in repeated) if repeated else None,
            drifts={seed: largest_so_far(one, baselines[seed]) for seed, one in nudged.items()},
            masks=record.base.model.dropout > 0,
        )

    def bound(self, promise: Numerics, seed: int, step: int) -> float:
        """The largest relative difference that a promise allows at a step; infinite where there is no bound."""
        if promise is Numerics.EXACT and self.repeats:
            return 0.0
        first, drift = step < FIRST_STEPS, self.drifts.get(seed)
        if promise is Numerics.DIFFERENT_TRAINING or (promise is Numerics.LOSSY and not first):
            return inf
        if drift is None:
            return LOSSY if promise is Numerics.LOSSY else ROUNDING if first and not self.masks else inf
        # A drift that stopped early bounds nothing; the first steps share one, which a crossing cannot make zero.
        at = max(step, FIRST_STEPS - 1) + ONSET
        known = drift[min(at, len(drift) - 1)] if step < len(drift) else inf
        return max(LOSSY if promise is Numerics.LOSSY else ROUNDING, DRIFT_FACTOR * known)

    def partings(self, cells: Iterable[CellResult]) -> list[Parting]:
        """First loss beyond its bound, for each cell that has one. A cell that was stopped is held as far as it got."""
        found = []
        for one in cells:
            promise, seed = bounded_as(one.cell.run), one.cell.seed
            bounds = ((pair, self.bound(promise, seed, pair.step)) for pair in self._held(promise, one))
            first = next(((pair, bound) for pair, bound in bounds if pair.difference > bound), None)
            if first is not None:
                found.append(Parting(seed, *first))
        return found

    def _held(self, promise: Numerics, one: CellResult) -> Iterator[Pair]:
        """Pairs of losses that the promise speaks of.

        A baseline that diverges bounds nothing but EXACT rows, and 16 bits may overflow where 32 do not.
        """
        baseline = self.baselines.get(one.cell.seed)
        if baseline is None:
            return
        exact = promise is Numerics.EXACT and bool(self.repeats)
        lossy = promise is Numerics.LOSSY
        may_diverge = lossy or baseline.result.status is Status.DIVERGED
        calm = _calm_steps(baseline) if lossy or one.cell.seed not in self.drifts else inf
        for pair in pairs(one, baseline):
            finite = pair.loss is not None and pair.other is not None
            if exact or (pair.step < calm and (finite or not may_diverge)):
                yield pair

    def equal_seeds(self, cells: Iterable[CellResult]) -> list[int]:
        """Seeds at which the first losses are the baseline's to the last bit."""
        return equal_seeds(cells, self.baselines)


def bounded_as(run: Run) -> Numerics:
    """The promise whose bound a run's losses have.

    In a mixture, rounding may send a token to another expert, and micro-batches have balance losses of their own. So
    what reorders sums there is near the baseline as LOSSY is, though rounding need not show.
    """
    promise = numerics_of(run)
    return Numerics.LOSSY if promise is Numerics.REASSOCIATED and run.model.n_expert else promise


def _calm_steps(one: CellResult) -> int:
    """Steps before the training loss spikes."""
    lowest = inf
    for step, loss in enumerate(one.curve.train_loss):
        if loss is None or loss > SPIKE * lowest:
            return step
        lowest = min(lowest, loss)
    return len(one.curve.train_loss)
