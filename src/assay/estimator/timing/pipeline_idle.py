"""Idle time of the ranks of a pipeline: a simulated schedule, with stage times from the ledgers.

The formula (p−1)/(vm + p−1) assumes equal stages. `bubble_share` simulates such stages, so that it also covers
schedules that split backward in two, with parts that take equally long. The stages of a model are not equal: the last
also computes the logits, and blocks may be distributed unevenly. `idle_shares` takes the FLOPs of each stage as its
time. Operations without FLOPs are left out, and sends are free. A product with a weight spends half of its backward on
the weight's gradient.
"""

from collections.abc import Mapping, Sequence

from assay.cost import Cost, repeated
from assay.cost.pipeline.bubble import Played, StageTime, play, play_chunks
from assay.cost.pipeline.schedules import Schedule

_EQUAL = StageTime(1.0, 1.0, 1.0)


def bubble_share(schedule: Schedule) -> float:
    """Share of a step that each of equal stages idles; `cost.pipeline.bubble_fraction` where that has a formula."""
    return play(schedule, [_EQUAL] * schedule.stages).idle_share


def idle_shares(every: Sequence[Cost]) -> Mapping[int, float]:
    """Share of a step that each rank idles, given the ledgers of all ranks; empty without a pipeline."""
    shares: dict[int, float] = {}
    mesh = every[0].mesh
    for line in mesh.groups("pp") if every[0].pipeline.schedule else ():
        played = _played([every[rank] for rank in line])
        shares |= dict(zip(line, played.idle_shares, strict=True))
    return shares


def _played(line: Sequence[Cost]) -> Played:
    schedule = line[0].pipeline.schedule
    if schedule is None:
        raise ValueError("there is no pipeline to simulate")
    return play_chunks(schedule, [[_chunk(cost, sites) for sites in cost.pipeline.stages] for cost in line])


def _chunk(cost: Cost, sites: tuple[str, ...]) -> StageTime:
    """FLOPs of one micro-batch in the modules of a stage, in place of seconds."""
    again = repeated(cost)
    forward = backward = weight = 0.0
    for index, operation in enumerate(cost.tape):
        if operation.within(*sites):
            forward += operation.flops.forward
            backward += operation.flops.backward + (operation.flops.forward if index in again else 0)
            if not cost.parameters.keys().isdisjoint(operation.inputs):
                weight += operation.flops.backward / 2
    return StageTime(forward, backward - weight, weight)
