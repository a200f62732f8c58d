"""Losses of two runs, step by step: how far apart they are, and where they are equal to the last bit."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from assay.records.status import Status
from assay.records.study import CellResult
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
