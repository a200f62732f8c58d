"""The joint step time of all ranks: the slowest rank's roofline, its communication, and its wait in a pipeline.

Each rank computes its ledger at the rates measured with its threads. Collectives take α–β on this machine's own link,
without overlap. Sends of a pipeline are simulated with its schedule, on stages as long as their roofline. Other
communication and the update follow them. The result is a sum of best cases. Ranks on one host share its memory's
bandwidth and, if cores are few, the cores with gloo's threads. Neither is modelled, nor is overlap, which would shorten
a step. Every measured step is printed with the error of this prediction.

A rank of a pipeline idles. The formula (p−1)/(vm + p−1) assumes equal stages. `bubble_share` simulates such stages, so
that it also covers schedules that split backward in two, with parts that take equally long. The stages of a model are
not equal: the last also computes the logits, and blocks may be distributed unevenly. `idle_shares` takes the FLOPs of
each stage as its time. Operations without FLOPs are left out, and sends are free. A product with a weight spends half
of its backward on the weight's gradient.
"""

from collections.abc import Mapping, Sequence

from assay.cost import Cost, multiplying, recomputed_positions
from assay.cost.collectives import Communication
from assay.cost.pipeline_bubble import Played, StageTime, play, play_chunks
from assay.cost.pipeline_schedules import Schedule
from assay.cost.work import communications
from assay.estimator.alpha_beta import seconds
from assay.estimator.timing.step_time import stage_time, step_seconds, update_seconds
from assay.hardware import Rates
from assay.hardware.links import Link, Network


def step_seconds_over_ranks(every: Sequence[Cost], rates: Rates) -> float | None:
    """Seconds of one optimizer step, given the ledgers of all ranks; None if a rate or the link was not measured."""
    if rates.link is None or any(not multiplying(cost) <= set(rates.matmul_flops) for cost in every):
        return None
    lines = every[0].mesh.groups("pp")
    return max(_line_seconds([every[rank] for rank in line], rates, rates.link) for line in lines)


def _line_seconds(line: Sequence[Cost], rates: Rates, link: Link) -> float:
    """Seconds of a step on the ranks of one pipeline, or on a single rank if there is no pipeline."""
    mesh, schedule = line[0].mesh, line[0].pipeline.schedule
    here = Network(inner=link, outer=link, ranks_per_node=mesh.size)
    if schedule is None:
        return max((step_seconds(cost, rates) or 0.0) + seconds(communications(cost), mesh, here) for cost in line)
    passed = [one for cost in line for one in communications(cost) if _passes_on(one)]
    send = max((link.seconds(one.payload_bytes) for one in passed), default=0.0)
    chunks = [[stage_time(cost, rates, sites) for sites in cost.pipeline.stages] for cost in line]
    played = play_chunks(schedule, chunks, send)
    others = [[one for one in communications(cost) if not _passes_on(one)] for cost in line]
    behind = max(
        update_seconds(cost, rates) + seconds(sent, mesh, here) for cost, sent in zip(line, others, strict=True)
    )
    return played.makespan_seconds + behind


def _passes_on(one: Communication) -> bool:
    return one.collective == "send" and one.axis == "pp"


_EQUAL = StageTime(1.0, 1.0, 1.0)


def bubble_share(schedule: Schedule) -> float:
    """Share of a step that each of equal stages idles; `bubble_fraction` where that has a formula."""
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
    again = recomputed_positions(cost)
    forward = backward = weight = 0.0
    for index, operation in enumerate(cost.tape):
        if operation.within(*sites):
            forward += operation.flops.forward
            backward += operation.flops.backward + (operation.flops.forward if index in again else 0)
            if not cost.parameters.keys().isdisjoint(operation.inputs):
                weight += operation.flops.backward / 2
    return StageTime(forward, backward - weight, weight)
