"""Losses of a row against those of the control: step by step, within promised bounds, and the smallest change.

Techniques promise something only where nothing else differs. A row with another learning rate, batch or model promises
nothing: its losses may equal the control's, or be anything else.

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

A row beyond its bounds keeps its figures, and its reason names the seed and the first step.

The interval of a row's loss is that of the differences over paired seeds (`typical`), as one of several comparisons.
Its half width is the smallest change that is called a difference. Rows deviate unequally, so the figures are those of a
typical row, the median. Rows that are equal to the last bit have no deviation, and do not count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf, sqrt
from statistics import median
from typing import NamedTuple, Self

from assay.analysis.effects import Effect, Resolution, degrees, factor, left_out
from assay.analysis.row import Row
from assay.config.run import ResolvedRun
from assay.optimizations import Numerics, numerics_of
from assay.optimizations.stack import all_known
from assay.records.status import Status
from assay.records.study import AGAIN, CellResult, ComparisonRecord
from assay.studies.drift import FIRST_STEPS
from assay.units import format_steps

Loss = float | None
"""A loss; None if it is not finite."""


class Pair(NamedTuple):
    """One loss of a run, and another run's loss at the same seed and step."""

    what: str
    """Name of the loss, such as ``"the training loss of step 7"``; steps count from 0, as in a run's events."""
    step: int
    loss: Loss
    other: Loss

    @property
    def difference(self) -> float:
        """Difference relative to the other loss; infinite if only one of the two is finite."""
        if self.loss == self.other:
            return 0.0
        if self.loss is None or self.other is None:
            return inf
        return abs(self.loss - self.other) / (abs(self.other) or 1.0)


def pairs(one: CellResult, other: CellResult) -> list[Pair]:
    """Losses that both runs have, by step; a validation loss follows the training loss of its step."""
    trained = zip(_train_losses(one), _train_losses(other), strict=False)
    found = [Pair(f"the training loss of step {step}", step, *both) for step, both in enumerate(trained)]
    known = dict(other.curve.evaluations)
    found += [
        Pair(f"the validation loss after {format_steps(done)}", max(done - 1, 0), loss, known[done])
        for done, loss in one.curve.evaluations
        if done in known
    ]
    return sorted(found, key=lambda pair: pair.step)


def largest_so_far(one: CellResult, other: CellResult) -> tuple[float, ...]:
    """Largest relative difference of two runs' training losses up to each step."""
    trained = zip(_train_losses(one), _train_losses(other), strict=False)
    return tuple(accumulate((Pair("", 0, *both).difference for both in trained), max))


def by_seed(cells: Iterable[CellResult]) -> dict[int, CellResult]:
    """The first cell of each seed that has a loss."""
    found: dict[int, CellResult] = {}
    for one in cells:
        if one.curve.train_loss:
            found.setdefault(one.cell.seed, one)
    return found


def equal_seeds(cells: Iterable[CellResult], others: Mapping[int, CellResult]) -> list[int]:
    """Seeds at which the losses of the first steps equal those of `others` to the last bit."""
    return sorted({one.cell.seed for one in cells if one.cell.seed in others and _equal(one, others[one.cell.seed])})


def seeds_text(seeds: Sequence[int]) -> str:
    """Format seeds as ``"seed 0"`` or ``"seeds 0, 1"``."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _equal(one: CellResult, other: CellResult) -> bool:
    differences = [pair.difference for pair in pairs(one, other) if pair.step < FIRST_STEPS]
    return bool(differences) and not any(differences)


def _train_losses(one: CellResult) -> tuple[Loss, ...]:
    """Training losses by step. A run whose gradients diverge ends with a finite loss; the next step has none."""
    losses = one.curve.train_loss
    ended = one.result.status is Status.DIVERGED and losses and losses[-1] is not None
    return (*losses, None) if ended else losses


_NO_MATTER = {"optimizations", "batch_divisor", "seed", "nudge", "ranks", "threads", "cores", "oversubscribe", "device"}
"""Fields of a run that techniques change, or that change no loss beyond rounding."""


def comparable(run: ResolvedRun, other: ResolvedRun) -> bool:
    """True if two runs differ in nothing that decides a loss but optimizations, seed and place."""
    return run.model_dump(exclude=_NO_MATTER) == other.model_dump(exclude=_NO_MATTER)


def loosest_promise(run: ResolvedRun, control: ResolvedRun | None) -> Numerics | None:
    """Return the loosest promise of a run's techniques; None if something else differs from the control.

    Without a control the promise is that of the techniques. A technique that is not known any more promises nothing.
    """
    if not all_known(run):
        return None
    return numerics_of(run) if control is None or comparable(run, control) else None


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
        return loosest_promise(one.cell.run, None if baseline is None else baseline.cell.run)

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


def check_promise(row: Row, cells: Sequence[CellResult], yardstick: Yardstick) -> Row:
    """Return the row, as `wrong_values` if losses of its cells break its promise. A failed row keeps its own reason."""
    found = wrong_values(cells, yardstick)
    if found is None:
        return row
    if row.status.failure:
        return row.model_copy(update={"flags": (*row.flags, f"wrong values: {found}")})
    return row.model_copy(update={"status": Status.WRONG_VALUES, "reason": found})


def wrong_values(cells: Sequence[CellResult], yardstick: Yardstick) -> str | None:
    """Return a sentence on losses that break the promise of their row; None if all keep it."""
    partings = yardstick.partings(cells)
    if partings:
        others = sorted({one.seed for one in partings} - {partings[0].seed})
        return str(partings[0]) + (f" (also at {seeds_text(others)})" if others else "")
    lossy = [one for one in cells if yardstick.promise(one) is Numerics.LOSSY]
    if equal := yardstick.equal_seeds(lossy):
        return f"the losses equal the baseline's to the last bit at {seeds_text(equal)}, but rounding must change them"
    return None


def unheld(record: ComparisonRecord, yardstick: Yardstick) -> list[str]:
    """Return sentences on losses that could not be compared with the baseline's, or only within rounding."""
    found = []
    if yardstick.repeats is False:
        found.append(
            "Two equal baselines had different losses, so no row must have equal losses; a bound is used instead."
        )
    ran = {one.cell.seed for one in record.cells}
    missing = [seed for seed in record.seeds if seed in ran and seed not in yardstick.baselines]
    if missing:
        found.append(f"Losses at {seeds_text(missing)} are not compared, because there is no baseline.")
    promises = {yardstick.promise(one) for one in record.cells}
    within_rounding = Numerics.REASSOCIATED in promises or not yardstick.repeats
    if within_rounding and record.base.training.steps > FIRST_STEPS and yardstick.baselines.keys() - yardstick.drifts:
        found.append(
            f"Losses are compared with the baseline's in the first {FIRST_STEPS} steps only, because the later drift "
            "was not measured."
        )
    return found


def loss_resolution(effects: Sequence[Effect], comparisons: int) -> Resolution | None:
    """Return the smallest changes of a loss as fractions, with rows judged as some of several comparisons.

    None if no row has an interval, which takes three seeds.
    """
    from assay.analysis.intervals import POWER, student

    told, likely, deviations, freedoms = list[float](), list[float](), list[float](), list[int]()
    for one in effects:
        half = 0.0 if one.interval is None else (one.interval[1] - one.interval[0]) / 2
        if one.equal or not half:
            continue
        critical, freedom = factor(one.pairs, comparisons), degrees(one.pairs)
        error = half / critical
        told.append(half)
        likely.append((critical + float(student(POWER, freedom))) * error)
        deviations.append(error * sqrt(one.pairs - 2 * left_out(one.pairs)))
        freedoms.append(freedom)
    if not told:
        return None
    return Resolution(told=median(told), likely=median(likely), deviation=median(deviations), degrees=min(freedoms))
