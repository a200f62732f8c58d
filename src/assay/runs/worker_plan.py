"""How the steps of one process are divided: first step, trace, warm-up, timed blocks.

All of them train. The first step is apart because it pays for what happens once (allocations, compilation), the second
because it is watched, and the next two because caches and clocks settle. What remains is cut into equal blocks; what
does not divide goes to the warm-up. Of a block of several steps the first settles: it is not timed. A run of few steps
has fewer or shorter pieces; one of a single step is all trace. Where the update of the watched step is skipped, the
next one is watched as well, and what comes after them is shorter.
"""

import math
from dataclasses import dataclass

from assay.config.run import Run

WARMUP = 2
BLOCKS = 5
"""Timed blocks of a run that does not wait for turns."""


@dataclass(frozen=True)
class Plan:
    """Numbers of steps, in the order in which they are done."""

    first: int
    trace: int
    warmup: int
    blocks: tuple[int, ...]

    @property
    def total(self) -> int:
        """All of them."""
        return self.first + self.trace + self.warmup + sum(self.blocks)


def steps_left(run: Run, step: int, tokens: int) -> int:
    """Steps from `step` to the last, or to the one that spends the budget of tokens."""
    left = run.training.steps - step
    if run.training.tokens is not None:
        left = min(left, math.ceil((run.training.tokens - tokens) / run.tokens_per_step))
    return max(left, 0)


def plan(steps: int, blocks: int = BLOCKS, traced: int = 1) -> Plan:
    """Divide `steps` into the pieces, with at most `blocks` timed blocks of at least one step."""
    trace = min(steps, traced)
    first = min(steps - trace, 1)
    rest = steps - first - trace
    count = min(blocks, rest - min(WARMUP, max(rest - 1, 0)))
    each = (rest - min(WARMUP, rest - 1)) // count if count else 0
    return Plan(first, trace, rest - count * each, (each,) * count)
