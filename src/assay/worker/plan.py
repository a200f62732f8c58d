"""Division of a process's steps into first step, trace, warm-up and timed blocks.

All steps train. The first step is separate because it pays for one-time costs (allocations, compilation). The second is
separate because it is traced, and the next two because caches and clocks settle. The remaining steps are cut into equal
blocks, and the remainder of the division is added to the warm-up. The first step of a block of several steps is not
timed.

Some steps of the warm-up and of the blocks are replayed by a reference (`values.replayed_steps`), and in one the heap
is counted. Such a step is not timed, and the step after it settles.

A run of few steps has fewer or shorter pieces, and a run of one step is only traced. If the update of the traced step
is skipped, the next one is traced as well, and the later pieces become shorter.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

from assay.config.run import ResolvedRun

WARMUP = 2
BLOCKS = 5
"""Number of timed blocks of a run without turns."""


@dataclass(frozen=True)
class WorkPlan:
    """Number of steps of each piece, in the order of execution."""

    first: int
    trace: int
    warmup: int
    blocks: tuple[int, ...]

    @property
    def total(self) -> int:
        """Sum of all pieces."""
        return self.first + self.trace + self.warmup + sum(self.blocks)


def steps_left(run: ResolvedRun, step: int, tokens: int) -> int:
    """Number of steps from `step` to the last, or to the step that spends the budget of tokens."""
    left = run.training.steps - step
    if run.training.tokens is not None:
        left = min(left, math.ceil((run.training.tokens - tokens) / run.tokens_per_step))
    return max(left, 0)


def plan(steps: int, blocks: int = BLOCKS, traced: int = 1) -> WorkPlan:
    """Divide `steps` into pieces, with at most `blocks` timed blocks of at least one step."""
    trace = min(steps, traced)
    first = min(steps - trace, 1)
    rest = steps - first - trace
    count = min(blocks, rest - min(WARMUP, max(rest - 1, 0)))
    each = (rest - min(WARMUP, rest - 1)) // count if count else 0
    return WorkPlan(first, trace, rest - count * each, (each,) * count)


PieceKind = Literal["settling", "steady", "replay", "heap"]


class Piece(NamedTuple):
    """Consecutive steps of a block that are taken in the same way."""

    kind: PieceKind
    steps: int


def block_pieces(first: int, steps: int, replayed: Collection[int], heap: int | None = None) -> list[Piece]:
    """Cut a timed block of `steps` steps from `first` on into pieces, in order.

    The first step settles, and so does one after a replayed step or after the one whose heap is counted. If no step
    would be timed, all that settle are.
    """
    pieces: list[Piece] = []
    for step in range(first, first + steps):
        kind: PieceKind = "replay" if step in replayed else "heap" if step == heap else "steady"
        before = pieces[-1].kind if pieces else None
        if kind == "steady" and before not in ("steady", "settling") and steps > 1:
            kind = "settling"
        if kind == before == "steady":
            pieces[-1] = Piece(kind, pieces[-1].steps + 1)
        else:
            pieces.append(Piece(kind, 1))
    if any(kind == "steady" for kind, _ in pieces):
        return pieces
    return [Piece("steady" if kind == "settling" else kind, count) for kind, count in pieces]
