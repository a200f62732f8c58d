"""Bytes of a step over time: micro-batches one after the other, or in the order of a pipeline's schedule.

Peak memory is the largest of all instants, never a sum of maxima.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from assay.cost.simulation.allocator import Category, Ledger, Moment
from assay.cost.simulation.micro_batch import Halved, Pass
from assay.cost.simulation.step_state import PlayedStep, StepNumbers
from assay.cost.step_cost import Cost


@dataclass(frozen=True)
class Timeline:
    """Memory of a replayed step."""

    peak: Moment
    requested: Moment
    """Highest instant with the workspaces of libraries, which the other figures leave out."""
    instants: tuple[Moment, ...]
    """The highest instant of each part of the step, in order: forward and backward by module, update."""
    saved_bytes: int
    """Bytes of the distinct storages saved for backward after a micro-batch's forward, without parameters. In a
    pipeline it is the maximum over the schedule."""
    allocations: int
    """Number of allocations in one optimizer step."""
    allocated_bytes: int
    """Sum of their bytes."""


def replay(cost: Cost, ledger: Ledger | None = None) -> Timeline:
    """Play a step, and return its instants.

    `ledger` has counted the bytes that exist before the step; the default counts only sums.
    """
    ledger = Ledger(live=cost.held_bytes) if ledger is None else ledger
    saved = play(cost, ledger)
    instants = tuple(Moment(*fields) for fields in ledger.highest.values())
    peak = max(instants, key=lambda moment: moment.nbytes)
    return Timeline(peak, Moment(*ledger.requested), instants, saved, ledger.allocations, ledger.allocated_bytes)


def play(cost: Cost, ledger: Ledger, *, update: bool = True) -> int:
    """Play a step into a ledger; return the bytes saved for backward, as in `Timeline`.

    Only two micro-batches are played: later ones repeat the second, so its counts are scaled. Each leaves the norms of
    its blocks' outputs, and the second is played with those of all. Without `update` the step ends before the
    optimizer's update.
    """
    step, figures, saved = PlayedStep(cost, ledger), StepNumbers(ledger), 0
    # A batch in the host's memory is not torch's; on a GPU the step holds the whole of it until it ends.
    for one in cost.batch.tensors if cost.kernels.gpu is not None else ():
        ledger.take(0 if one.batched else one.nbytes, Category.BATCH)
    for index in range(min(cost.micro_batches, 2)) if not cost.order else ():
        since = (ledger.allocations, ledger.allocated_bytes)
        passing = Pass(step, step.stages[0], first=index == 0, last=index + 1 == min(cost.micro_batches, 2))
        if index == 1:
            figures.take((cost.micro_batches - 2) * len(step.stages[0].watched))
        passing.forward()
        saved = _together(step, [passing])
        figures.begin_backward()
        passing.backward()
        figures.end_backward()
        if index == 1:
            ledger.repeat(since, cost.micro_batches - 2)
    if cost.order:
        saved = _in_order(step)
    if cost.replayed:
        ledger.capture()
        step.multiply_again()
    ledger.end_passes()
    if update:
        step.update(cost.update)
    return saved


def _in_order(step: PlayedStep) -> int:
    """Play the actions of the schedule; returns the largest number of bytes saved for backward at once."""
    alive: dict[tuple[int, int], Halved] = {}
    highest, last = 0, step.cost.micro_batches - 1
    whole = (one.nbytes for one in step.cost.batch.tensors if not one.batched)
    step.ledger.take(sum(whole), Category.BATCH)  # the schedule's own copy
    for action in step.cost.order:
        key = (action.micro_batch, action.chunk)
        if action.kind == "F":
            first = action.micro_batch == 0
            alive[key] = Halved(step, step.stages[action.chunk], first=first, last=action.micro_batch == last)
            alive[key].forward()
            highest = max(highest, _together(step, alive.values()))
        elif action.kind == "I":
            alive[key].input_gradients()
        elif action.kind == "W":
            alive.pop(key).weight_gradients()
        else:
            alive.pop(key).backward()
    return highest


def _together(step: PlayedStep, passes: Iterable[Pass]) -> int:
    """Bytes that several micro-batches save; tables and token ids, which all of them share, count once."""
    shared = {one.name for one in (*step.cost.tables, *step.cost.batch.tensors) if not one.batched}
    kept = [one.saved() for one in passes]
    own = sum(step.sizes[name] for names in kept for name in names - shared)
    return own + sum(step.sizes[name] for name in shared & set().union(*kept))
