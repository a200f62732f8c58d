"""How long a step over ranks should take: the slowest rank's roofline, what it sends, and what it waits in a pipeline.

Each rank computes what its ledger says, at the rates measured with its threads. Collectives take α–β on this machine's
own link, none of them hidden; the sends of a pipeline are played with its schedule, on stages as long as their roofline
says, and what else is sent, and the update, come after it. So it is a sum of best cases: ranks on one host share its
memory's bandwidth and, where cores are few, cores with gloo's threads, neither of which is in it, and overlap, which
would shorten a step, is not either. Its error stands beside every measured step.
"""

from collections.abc import Sequence

from assay.cost import Cost, executed_flops
from assay.cost.collectives import Communication
from assay.cost.pipeline import play_chunks
from assay.cost.work import communications
from assay.estimate.communication import seconds
from assay.estimate.time import stage_time, step_seconds, update_seconds
from assay.hardware import Rates
from assay.hardware.links import Link, Network


def step_seconds_over_ranks(every: Sequence[Cost], rates: Rates) -> float | None:
    """Seconds of one optimizer step, given every rank's ledger; None where a rate or the link was not measured."""
    if rates.link is None or any(not set(executed_flops(cost)) <= set(rates.matmul_flops) for cost in every):
        return None
    lines = every[0].mesh.groups("pp")
    return max(_line_seconds([every[rank] for rank in line], rates, rates.link) for line in lines)


def _line_seconds(line: Sequence[Cost], rates: Rates, link: Link) -> float:
    """Of the ranks of one pipeline, or of a rank that has everything."""
    mesh, schedule = line[0].mesh, line[0].schedule
    here = Network(inner=link, outer=link, ranks_per_node=mesh.size)
    if schedule is None:
        return max((step_seconds(cost, rates) or 0.0) + seconds(communications(cost), mesh, here) for cost in line)
    passed = [one for cost in line for one in communications(cost) if _passes_on(one)]
    send = max((link.seconds(one.payload_bytes) for one in passed), default=0.0)
    played = play_chunks(schedule, [[stage_time(cost, rates, sites) for sites in cost.stages] for cost in line], send)
    others = [[one for one in communications(cost) if not _passes_on(one)] for cost in line]
    behind = max(
        update_seconds(cost, rates) + seconds(sent, mesh, here) for cost, sent in zip(line, others, strict=True)
    )
    return played.makespan_seconds + behind


def _passes_on(one: Communication) -> bool:
    return one.collective == "send" and one.axis == "pp"
