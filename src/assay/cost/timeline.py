"""A step's bytes over time: its micro-batches one after the other, or in the order of a pipeline's schedule.

Peak memory is the largest of the instants that are found on the way, never a sum of maxima.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from assay.cost.halves import Halved
from assay.cost.ledger import Moment
from assay.cost.played import PlayedStep
from assay.cost.replay import Pass
from assay.cost.step import Cost


@dataclass(frozen=True)
class Timeline:
    """What a replayed step holds."""

    peak: Moment
    instants: tuple[Moment, ...]
    """The highest moment of each part of the step, in order: forward, backward by module, update."""
    saved_bytes: int
    """Distinct storages kept for backward at the end of one micro-batch's forward, parameters left out."""
    allocations: int
    """Requests to the allocator in one optimizer step."""
    allocated_bytes: int
    """Their sum."""


def replay(cost: Cost) -> Timeline:
    """Play the step. From the third on, micro-batches repeat the second, so two are played and the counts scaled."""
    step = PlayedStep(cost)
    ledger, saved = step.ledger, 0
    for index in range(min(cost.micro_batches, 2)) if not cost.order else ():
        since = (ledger.allocations, ledger.allocated_bytes)
        passing = Pass(step, step.stages[0], first=index == 0, last=index + 1 == min(cost.micro_batches, 2))
        passing.forward()
        saved = _together(step, [passing])
        passing.backward()
        if index == 1:
            ledger.repeat(since, cost.micro_batches - 2)
    if cost.order:
        saved = _in_order(step)
    if cost.replayed:
        # A graph keeps what it ever held, and the update stands beside all of it.
        ledger.live = max(moment.nbytes for moment in ledger.highest.values())
    step.update(cost.update)
    instants = tuple(ledger.highest.values())
    peak = max(instants, key=lambda moment: moment.nbytes)
    return Timeline(peak, instants, saved, ledger.allocations, ledger.allocated_bytes)


def _in_order(step: PlayedStep) -> int:
    """Play the stages' forwards and backwards in the order of the schedule; returns the most bytes kept at once."""
    alive: dict[tuple[int, int], Halved] = {}
    highest, last = 0, step.cost.micro_batches - 1
    step.ledger.take(sum(one.nbytes for one in step.cost.batch if not one.batched))  # one batch again, for the schedule
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
    """What several micro-batches keep; tables and token ids, which are one tensor for all of them, once."""
    shared = {one.name for one in (*step.cost.tables, *step.cost.batch) if not one.batched}
    kept = [one.saved() for one in passes]
    own = sum(step.values[name].nbytes for names in kept for name in names - shared)
    return own + sum(step.values[name].nbytes for name in shared & set().union(*kept))
