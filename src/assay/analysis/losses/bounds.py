"""Bounds on the losses of a row, which are compared step by step with the baseline's at the same seed.

A row trains from its baseline's weights and on its batches, so its promise (`Numerics`) bounds its losses:

- EXACT: each loss is the baseline's to the last bit. If two equal baselines differ, as on a GPU, a row is judged as if
  it were REASSOCIATED.
- REASSOCIATED: the relative difference is at most `ROUNDING` in the first `FIRST_STEPS` steps. In every step it may be
  `DRIFT_FACTOR` times the drift, which is the largest difference so far that nudged weights made at the same seed
  (`studies.drift`). Chaos sets in earlier in one run than in another, and the difference grows with the steps before.
  So the drift is read later (`read_at`). If no drift was measured, only the first steps are judged, until the
  baseline's loss spikes.
- LOSSY: at most `LOSSY`, or `DRIFT_FACTOR` times the drift, in the first steps, until the baseline's loss spikes. The
  losses must not be equal, since rounding must show.
- DIFFERENT_TRAINING: no bound; equal losses are suspect.

A validation loss is judged like the training loss of the step before it. The bounds come from measurements of honest
techniques, in `docs/measured/losses.md`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Self

from assay.analysis.losses.pairs import Pair, by_seed, equal_seeds, largest_so_far, pairs
from assay.analysis.promised import promised
from assay.config.run import ResolvedRun
from assay.optimizations import Numerics
from assay.records.status import Status
from assay.records.study import AGAIN, CellResult, ComparisonRecord
from assay.studies.drift import FIRST_STEPS

ROUNDING = 3e-5
"""Relative bound: a hundred times the worst honest technique, since large models and GPUs were not measured."""
LOSSY = 0.05
"""Relative bound: four times the worst honest technique."""
DRIFT_FACTOR = 3.0
ONSET = 20
"""Least number of steps by which the drift is read later."""
ONSET_SHARE = 2
"""The drift is read later by at least the steps so far over this number."""
SPIKE = 1.05
"""Factor over the lowest loss that marks a spike: the learning rate is too high, and rounding errors grow at once."""


class Parting(NamedTuple):
    """First loss of a run that is farther from the baseline's than its bound."""

    seed: int
    pair: Pair
    bound: float
    """Relative bound; 0 requires equality to the last bit."""

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
    """Baselines with which a comparison's losses are compared, and how far rounding alone moves losses from them."""

    baselines: Mapping[int, CellResult]
    """Baseline cells by seed."""
    repeats: bool | None
    """True if two equal baselines had equal losses; None if there are not two."""
    drifts: Mapping[int, tuple[float, ...]]
    """Largest relative difference so far that nudged weights made, by seed and step."""
    masks: bool
    """True if dropout draws masks. A technique may draw others, which moves losses apart by more than rounding."""

    @classmethod
    def of(cls, record: ComparisonRecord) -> Self:
        """Return the yardstick of one comparison."""
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

    def promise(self, one: CellResult) -> Numerics | None:
        """Return what a cell promises of its losses against the baseline at its seed; None if it promises nothing."""
        baseline = self.baselines.get(one.cell.seed)
        return promised(one.cell.run, None if baseline is None else baseline.cell.run)

    def bound(self, promise: Numerics, seed: int, step: int) -> float:
        """Return the largest relative difference that a promise allows at a step; infinite if there is no bound."""
        if promise is Numerics.EXACT and self.repeats:
            return 0.0
        first, drift = step < FIRST_STEPS, self.drifts.get(seed)
        if promise is Numerics.DIFFERENT_TRAINING or (promise is Numerics.LOSSY and not first):
            return inf
        if drift is None:
            return LOSSY if promise is Numerics.LOSSY else ROUNDING if first and not self.masks else inf
        # Steps beyond a measured drift have no bound.
        known = drift[min(read_at(step), len(drift) - 1)] if step < len(drift) else inf
        return max(LOSSY if promise is Numerics.LOSSY else ROUNDING, DRIFT_FACTOR * known)

    def partings(self, cells: Iterable[CellResult]) -> list[Parting]:
        """Return the first loss beyond its bound for each cell that has one. A stopped cell is checked to its end."""
        found = []
        for one in cells:
            promise, seed = bounded_as(one.cell.run, self.promise(one)), one.cell.seed
            if promise is None:
                continue
            bounds = ((pair, self.bound(promise, seed, pair.step)) for pair in self._held(promise, one))
            first = next(((pair, bound) for pair, bound in bounds if pair.difference > bound), None)
            if first is not None:
                found.append(Parting(seed, *first))
        return found

    def _held(self, promise: Numerics, one: CellResult) -> Iterator[Pair]:
        """Pairs of losses to which the promise applies.

        Except in EXACT rows, a loss that is not finite is skipped if the baseline diverges. LOSSY rows always skip it,
        since 16 bits may overflow where 32 bits do not.
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
        """Seeds at which the first losses equal the baseline's to the last bit."""
        return equal_seeds(cells, self.baselines)


def read_at(step: int) -> int:
    """Return the step at which the drift is read for the bound of a step.

    The first steps share one, since a crossing of the two losses can make a difference zero.
    """
    return max(step, FIRST_STEPS - 1) + max(ONSET, step // ONSET_SHARE)


def bounded_as(run: ResolvedRun, promise: Numerics | None) -> Numerics | None:
    """Return the promise whose bound applies to a run's losses; None if it promises nothing.

    In a mixture of experts, rounding may send a token to another expert, and micro-batches have balance losses of their
    own. Reordered sums there stay as near to the baseline as LOSSY does, though rounding need not show.
    """
    return Numerics.LOSSY if promise is Numerics.REASSOCIATED and run.model.n_expert else promise


def _calm_steps(one: CellResult) -> int:
    """Number of steps before the training loss spikes."""
    lowest = inf
    for step, loss in enumerate(one.curve.train_loss):
        if loss is None or loss > SPIKE * lowest:
            return step
        lowest = min(lowest, loss)
    return len(one.curve.train_loss)
