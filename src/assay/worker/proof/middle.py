"""The proof of a run's middle: some steps are replayed whole, all updates are watched, and the heap of one is counted.

The steps are drawn from the run's seed after the program is built. A replayed step is recorded and compared at once,
like the first ones: batch, masks, loss, gradients and update. Of every update a sample of elements is replayed
(`values.watch`).

A technique may act in traced steps only, or keep aside what it seems to save, in a numpy array or on the heap. So the
heap is counted in a drawn step of the timed blocks, without any hook of torch's, and compared with the tensors' peak.
In one of the replayed steps torch's profiler counts calls of operators, which are compared with the traced step's.

A technique may act only while a dispatch mode watches. The profiler sees the calls of operators from below, in a step
that runs as timed ones do. It counts an operator under its name without overload, and also one that a recomputation
begins and breaks off.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from assay.instruments.memory.memory_pass import heap_of, live_tensor_bytes
from assay.instruments.memory.tensor_peak import event_tree
from assay.proofs.later_steps import called_otherwise
from assay.records.trace import Trace
from assay.step.program import Step
from assay.training.loop import Loop, TakeStep
from assay.training.probes import ActivationNorms
from assay.training.queued_step import Taken
from assay.training.step_record import StepRecord
from assay.training.stops import NoEffect
from assay.values.replayed_steps import Costs, affordable, draw_steps
from assay.worker.blocks import Piece, block_pieces
from assay.worker.proof.values import ValueCheck

_OPERATOR = "aten::"


def profiled_calls(work: Callable[[], None]) -> Counter[str]:
    """Call `work`, and return how often it called each operator, by its name such as `mm`.

    Raises `RuntimeError` if this build of torch has no profiler.
    """
    named = _called(event_tree(work))
    return Counter(name.removeprefix(_OPERATOR) for name in named if name.startswith(_OPERATOR))


def _called(events: Sequence[Any]) -> Iterator[str]:
    """Yield the name of each event; an operator that does nothing but call another overload of itself is one call."""
    for event in events:
        name, inner = event.name, event.children
        yield name
        while len(inner) == 1 and inner[0].name == name:
            inner = inner[0].children
        yield from _called(inner)


Found = TypeVar("Found")

COSTS = {"exact": Costs(7.5, 4.0, 1.5), "lossy": Costs(8.5, 6.0, 1.6), "reassociated": Costs(9.0, 6.0, 2.0)}
"""Costs of the proofs by kind of gradients.

They are those of the preset `demo`. In a model whose step takes a millisecond a check takes more of its steps.
"""


class Middle:
    """The drawn steps of one process: those after its first recorded ones, `untimed` and then the timed `blocks`."""

    def __init__(
        self, values: ValueCheck, loop: Loop, trace: Trace | None, untimed: int, blocks: tuple[int, ...]
    ) -> None:
        seed, first = loop.run.seed, loop.position.step
        self._values, self._loop, self._trace = values, loop, trace
        self.untimed = untimed
        self.steps = range(first, first + untimed + sum(blocks))
        count = 0
        if not values.unchecked:
            stated, proof, measured = COSTS[values.kind], values.proof, None
            if proof is not None and proof.replay_baseline_steps and proof.baseline_steps:
                measured = stated.slowed(proof.baseline_steps, proof.replay_baseline_steps)
            count = affordable(loop.run.training.steps, len(self.steps), stated, measured)
        self.replayed = frozenset(draw_steps(self.steps, count, seed))
        values.note(middle_steps=len(self.steps))
        # A block of one step has none to spare.
        timed = self.steps[untimed:] if max(blocks, default=0) > 1 else self.steps[:0]
        able = [step for step in timed if step not in self.replayed]
        self._heap_step = random.Random(f"step whose heap is counted, seed {seed}").choice(able) if able else None
        rng = random.Random(f"step whose calls are counted, seed {seed}")
        self._profiled = rng.choice(sorted(self.replayed)) if self.replayed else None
        self.heap: Mapping[str, int] = {}
        """Figures of the heap by name, once they were counted."""

    def pieces(self, steps: int, *, heap: bool = False) -> list[Piece]:
        """Cut the next `steps` steps into pieces; the heap is counted in one of them if `heap` says so."""
        return block_pieces(self._loop.position.step, steps, self.replayed, self._heap_step if heap else None)

    def replay(self, take: TakeStep) -> None:
        """Do the next step, and compare it with its reference.

        Raises `WrongValues` or `NoEffect` if it differs, and any other `EarlyEnd` of the step.
        """
        step = self._loop.position.step
        counted = _Within(profiled_calls, take)
        with self._values.recorded("middle", step, 1):
            self._loop.advance(1, self._values.taking(counted if step == self._profiled else take))
            self._values.conclude()
        calls, trace = counted.found, self._trace
        if calls is not None and trace is not None and (fault := called_otherwise(trace, calls)):
            raise NoEffect(fault)

    def count_heap(self, take: TakeStep) -> None:
        """Do the next step under memray, which sees every allocation of the process."""
        live, counted = live_tensor_bytes(self._loop.step.program.device), _Within(heap_of, take)
        self._loop.advance(1, counted)
        if found := counted.found:
            peak = live + found.above_start_bytes
            counts = {"allocations": found.allocations, "allocated_bytes": found.allocated_bytes}
            self.heap = {"heap_peak_bytes": peak, **counts}


class _Within(Generic[Found]):
    """Takes a step within an instrument. What is due after the step, such as an evaluation, is outside of it."""

    def __init__(self, instrument: Callable[[Callable[[], None]], Found], take: TakeStep) -> None:
        self._instrument, self._take = instrument, take
        self.found: Found | None = None

    def __call__(self, step: Step, index: int, probes: ActivationNorms | None) -> StepRecord | Taken:
        taken: list[StepRecord | Taken] = []
        self.found = self._instrument(lambda: taken.append(self._take(step, index, probes)))
        return taken[0]
