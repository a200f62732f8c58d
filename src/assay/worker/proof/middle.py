"""The proof of a run's middle: some steps are replayed whole, all updates are watched, and the heap of one is counted.

The steps are drawn from the run's seed after the program is built. A replayed step is recorded and compared at once,
like the first ones: batch, masks, loss, gradients and update. Of every update a sample of elements is replayed
(`values.watch`).

A technique may act in traced steps only, or keep aside what it seems to save, in a numpy array or on the heap. So the
heap is counted in a drawn step of the timed blocks, without any hook of torch's, and compared with the tensors' peak.
"""

import random
from collections.abc import Mapping, Sequence
from functools import partial

from assay.instruments.memory.heap import heap_of
from assay.instruments.memory.memory_pass import live_tensor_bytes
from assay.training.loop import Loop, TakeStep
from assay.values.places import affordable, drawn
from assay.worker.plan import Piece, block_pieces
from assay.worker.proof.values import ValueCheck

_COSTS = {"exact": (12.0, 1.5), "lossy": (14.0, 2.0), "reassociated": (18.0, 3.5)}
"""Baseline steps of time by kind of gradients: for the run's first and last steps together, and for a replayed one."""


class Middle:
    """The drawn steps of one process: those after its first recorded ones, `untimed` and then the timed `blocks`."""

    def __init__(self, values: ValueCheck, loop: Loop, untimed: int, blocks: tuple[int, ...]) -> None:
        seed, first = loop.run.seed, loop.position.step
        self._values, self._loop = values, loop
        self.untimed = untimed
        self.steps = range(first, first + untimed + sum(blocks))
        timed: Sequence[int] = self.steps[untimed:] if max(blocks, default=0) > 1 else range(0)
        count = 0
        if timed and not values.unchecked:
            count = affordable(loop.run.training.steps, len(self.steps), *_COSTS[values.kind])
        self.replayed = frozenset(drawn(self.steps, count, seed))
        values.note(middle_steps=len(self.steps))
        able = [step for step in timed if step not in self.replayed]
        self._heap_step = random.Random(f"step whose heap is counted, seed {seed}").choice(able) if able else None
        self.heap: Mapping[str, int] = {}
        """Figures of the heap by name, once they were counted."""

    def pieces(self, steps: int, *, heap: bool = False) -> list[Piece]:
        """Cut the next `steps` steps into pieces; the heap is counted in one of them if `heap` says so."""
        return block_pieces(self._loop.position.step, steps, self.replayed, self._heap_step if heap else None)

    def replay(self, take: TakeStep) -> None:
        """Do the next step, and compare it with its reference. Raises an `EarlyEnd`, `WrongValues` among them."""
        with self._values.recorded("middle", self._loop.position.step, 1):
            self._loop.advance(1, self._values.taking(take))
            self._values.conclude()

    def count_heap(self, take: TakeStep) -> None:
        """Do the next step under memray, which sees every allocation of the process."""
        live = live_tensor_bytes(self._loop.step.program.device)
        if found := heap_of(partial(self._loop.advance, 1, take)):
            peak = live + found.above_start_bytes
            counts = {"allocations": found.allocations, "allocated_bytes": found.allocated_bytes}
            self.heap = {"heap_peak_bytes": peak, **counts}
