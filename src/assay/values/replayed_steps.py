"""Steps of a run's middle that are replayed whole: one drawn from each of so many equal parts.

The seed of the run determines them, and they are drawn after the program is built, so no technique knows them. One step
of each part is drawn, and not any steps, because a fault then hides nowhere. A fault in k of n steps is missed by m
replayed ones with a probability of at most (1 − k/n)^m.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

FREE_BASELINE_STEPS = 20
"""Baseline steps of time that all proofs of a run may take, however short it is."""
SHARE_OF_RUN = Fraction(5, 100)
"""Share of a run's steps that all its proofs may take instead, if that is more."""
_DEAR = 1.4
"""Factor on the stated cost of a replay beyond which a short run believes what was measured."""
_SPACING = 4
"""Least number of the middle's steps for each replayed one: the step itself and the next one are not timed."""


def draw_steps(middle: Sequence[int], count: int, seed: int) -> tuple[int, ...]:
    """Return `count` steps of `middle`, one from each of so many parts of it that are equal up to one step."""
    rng = random.Random(f"steps that are replayed, seed {seed}")
    edges = [part * len(middle) // count for part in range(count + 1)] if count else []
    return tuple(middle[rng.randrange(low, high)] for low, high in pairwise(edges))


@dataclass(frozen=True)
class Costs:
    """Baseline steps of time that the proofs of a run take."""

    first: float
    """The check of the first steps."""
    last: float
    """The checks of evaluations and of the last steps."""
    each: float
    """The check of a replayed step of the middle."""

    def slowed(self, first: float, each: float) -> "Costs":
        """Return the costs in a run whose first check took so long; no cost is less than it was."""
        first, each = max(first, self.first), max(each, self.each)
        return Costs(first, self.last * first / self.first, each)

    @property
    def fixed(self) -> float:
        """All but the replayed steps."""
        return self.first + self.last


def affordable(steps: int, middle: int, stated: Costs, measured: Costs | None = None) -> int:
    """Return how many steps of a run's middle can be replayed; at least one if there is a middle.

    All proofs together may take `FREE_BASELINE_STEPS`, or `SHARE_OF_RUN` of the run's `steps` if that is more. Where
    they take longer, as they were `measured`, fewer steps are replayed, but at least half as many. A short run has few
    of them, and a busy machine measures somewhat more. There a replay must be clearly dearer than stated.
    """
    budget = max(float(FREE_BASELINE_STEPS), float(SHARE_OF_RUN * steps))
    count = int((budget - stated.fixed) / stated.each)
    if measured is not None and (budget > FREE_BASELINE_STEPS or measured.each > _DEAR * stated.each):
        half = (count + 1) // 2
        count = min(count, max(half, int((budget - measured.fixed) / measured.each)))
    return min(middle, max(1, min(middle // _SPACING, count)))
