"""Work of forward and backward, and of the update, as sums that searches add up.

It is that of kernels on a GPU of a datasheet, and a roofline's elsewhere. Sums leave out what the host does after a
wait; a whole step plays its queue (`gpu_step`).
"""

from collections.abc import Iterable

from assay.cost import Cost, multiplying
from assay.estimator.timing import gpu_step, step_time
from assay.estimator.timing.gpu_time import speeds_for
from assay.estimator.timing.queue import Queued
from assay.estimator.timing.step_time import RooflineWork
from assay.hardware import Rates


def pass_work(cost: Cost, rates: Rates) -> RooflineWork | None:
    """Work of all forwards and backwards of a step; None if the rate of a dtype is not known."""
    speeds = speeds_for(rates)
    if speeds is None:
        return step_time.pass_work(cost, rates)
    if not multiplying(cost) <= speeds.dtypes:
        return None
    first, further = map(_sum, gpu_step.passes(cost, speeds))
    return first.plus(further, cost.micro_batches - 1)


def update_work(cost: Cost, rates: Rates) -> RooflineWork:
    """Work of the gradient norm and of the update."""
    speeds = speeds_for(rates)
    return step_time.update_work(cost, rates) if speeds is None else _sum(gpu_step.update(cost, speeds))


def _sum(queue: Iterable[Queued]) -> RooflineWork:
    working = launching = 0.0
    for one in queue:
        working += one.device
        launching += one.host
    return RooflineWork(working, launching)
