"""Predicted step time over ranks: the slowest rank's roofline, its communication, and its wait in a pipeline.

Each rank computes its ledger at the rates measured with its threads. Collectives take α–β on this machine's own link,
without overlap. Sends of a pipeline are simulated with its schedule, on stages as long as their roofline. Other
communication and the update follow them. The result is a sum of best cases. Ranks on one host share its memory's
bandwidth and, if cores are few, the cores with gloo's threads. Neither is modelled, nor is overlap, which would shorten
a step. Every measured step is printed with the error of this prediction.
"""

from collections.abc import Sequence

from assay.cost import Cost, multiplying
from assay.cost.collectives import Communication
from assay.cost.pipeline.bubble import play_chunks
from assay.cost.work import communications
from assay.estimator.communication import seconds
from assay.estimator.timing.roofline import stage_time, step_seconds, update_seconds
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
