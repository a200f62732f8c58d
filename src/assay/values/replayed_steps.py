"""Steps of a run's middle that are replayed whole: one drawn from each of so many equal parts.

The seed of the run determines them, and they are drawn after the program is built, so no technique knows them. One step
of each part is drawn, and not any steps, because a fault then hides nowhere. A fault in k of n steps is missed by m
replayed ones with a probability of at most (1 − k/n)^m.
"""

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

FREE_BASELINE_STEPS = 20
"""Baseline steps of time that all proofs of a run may take, however short it is."""
SHARE_OF_RUN = Fraction(5, 100)
"""Share of a run's steps that all its proofs may take instead, if that is more."""
_SPACING = 4
"""Least number of the middle's steps for each replayed one: the step itself and the next one are not timed."""


def draw_steps(middle: Sequence[int], count: int, seed: int) -> tuple[int, ...]:
    """Return `count` steps of `middle`, one from each of so many parts of it that are equal up to one step."""
    rng = random.Random(f"steps that are replayed, seed {seed}")
    edges = [part * len(middle) // count for part in range(count + 1)] if count else []
    return tuple(middle[rng.randrange(low, high)] for low, high in pairwise(edges))


def affordable(steps: int, middle: int, beginning_and_end: float, each: float, measured: float = 0.0) -> int:
    """Return how many steps of a run's middle can be replayed; at least one if there is a middle.

    All proofs together may take `FREE_BASELINE_STEPS`, or `SHARE_OF_RUN` of the run's `steps` if that is more. The
    first and last steps of the run take `beginning_and_end` of them, and a replayed step takes `each`. Where it takes
    longer, as it was `measured`, a long run replays fewer steps, but at least half as many. A short run replays the
    same: there a step is a matter of milliseconds.
    """
    free, share, slower = float(FREE_BASELINE_STEPS), float(SHARE_OF_RUN * steps), max(1.0, measured / each)
    in_share = (share - beginning_and_end) / each
    kept = max(in_share / 2, (share - slower * beginning_and_end) / (slower * each))
    count = max((free - beginning_and_end) / each, kept if slower > 1 else in_share)
    return min(middle, max(1, min(middle // _SPACING, int(count))))
