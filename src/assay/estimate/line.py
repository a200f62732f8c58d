"""The ranks of a pipeline together: how much of a step each idles, played with the stages that the ledgers have.

The formula (p−1)/(vm + p−1) is of equal stages; `bubble_share` plays those, so that it also speaks of a schedule that
cuts backward in two, whose parts then take equally long. The stages of a model are not equal: the last has the logits
on top, and blocks may be dealt unevenly. `idle_shares` gives each stage its own length, which is its FLOPs: what is no
product is left out, and sends are free. A product with a weight spends half of its backward on the gradient of that.
"""

from collections.abc import Mapping, Sequence

from assay.cost import Cost, repeated
from assay.cost.pipeline import Played, StageTime, play, play_chunks
from assay.cost.schedules import Schedule

_EQUAL = StageTime(1.0, 1.0, 1.0)


def bubble_share(schedule: Schedule) -> float:
    """The share of a step that each of equal stages idles: `cost.pipeline.bubble_fraction` where that has a formula."""
    return play(schedule, [_EQUAL] * schedule.stages).idle_share


def idle_shares(every: Sequence[Cost]) -> Mapping[int, float]:
    """By rank, given every rank's ledger; empty without a pipeline."""
    shares: dict[int, float] = {}
    mesh = every[0].mesh
    for line in mesh.groups("pp") if every[0].schedule else ():
        played = _played([every[rank] for rank in line])
        shares |= dict(zip(line, played.idle_shares, strict=True))
    return shares


def _played(line: Sequence[Cost]) -> Played:
    schedule = line[0].schedule
    if schedule is None:
        raise ValueError("there is no pipeline to play")
    return play_chunks(schedule, [[_chunk(cost, sites) for sites in cost.stages] for cost in line])


def _chunk(cost: Cost, sites: tuple[str, ...]) -> StageTime:
    """FLOPs of one micro-batch in the modules of a stage, in the place of seconds."""
    again = repeated(cost)
    forward = backward = weight = 0.0
    for index, operation in enumerate(cost.tape):
        if operation.within(*sites):
            forward += operation.flops
            backward += operation.backward_flops + (operation.flops if index in again else 0)
            if not cost.parameters.keys().isdisjoint(operation.inputs):
                weight += operation.backward_flops / 2
    return StageTime(forward, backward - weight, weight)
