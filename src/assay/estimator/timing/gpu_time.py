"""The predicted time of a step on a GPU that is known by its datasheet, with the margin that such predictions have.

Margins are those of docs/measured/predicted_times.md: what steps that were measured, and took no part in any fit, are
within. On the H200, whose operators were measured, all of them were nearer. Where the host bounds a step, its speed is
known by the launch costs of one machine only. The margin of other devices was held against one published study.

Searches add up the work of forward and backward, and that of the update, as sums. It is that of kernels on a GPU of a
datasheet, and a roofline's elsewhere. Sums leave out what the host does after a wait; a whole step plays its queue
(`gpu_step`).
"""

from collections.abc import Iterable

from assay.cost import Cost, multiplying
from assay.estimator.timing import step_time
from assay.estimator.timing.gpu_step import GpuStep, Queued, gpu_step, passes, update
from assay.estimator.timing.step_time import RooflineWork, StepTime
from assay.hardware import Rates
from assay.hardware.kernel_seconds import Speeds, speeds_of

MARGIN, HOST_MARGIN = 0.20, 0.40
"""Margins on the measured device: the second one where the host bounds a step that is not compiled or captured."""
OTHER_MARGIN = 0.40
"""Margin on any other device, and of mixtures of experts, whose steps were not measured."""
_ROUTER = "aten.topk"


def speeds_for(rates: Rates) -> Speeds | None:
    """Return the speeds of the device of a datasheet; None for rates that were measured on a machine."""
    return speeds_of(rates.sheet) if rates.sheet else None


def gpu_time(cost: Cost, rates: Rates) -> StepTime | None:
    """Return the time of a step; None if it is not predicted by kernels.

    Rates that were measured have a roofline, steps over several ranks need rates of links, and no datasheet has
    products of every dtype.
    """
    speeds = speeds_for(rates)
    if speeds is None or cost.mesh.size > 1 or not multiplying(cost) <= speeds.dtypes:
        return None
    step = gpu_step(cost, speeds)
    played = step.played()
    return StepTime(played.seconds, margin_of(cost, step, speeds), apart=(played.host, played.device))


def margin_of(cost: Cost, step: GpuStep, speeds: Speeds) -> float:
    """Half of the interval of a step's time, relative to it."""
    if any(one.name == _ROUTER for one in cost.tape):
        return OTHER_MARGIN
    compiled = cost.replayed or any(one.compiled for one in cost.tape)
    return margin_on(speeds, by_host=step.bounded_by_host and not compiled)


def margin_on(speeds: Speeds, *, by_host: bool) -> float:
    """Half of the interval of a step's time on a device, relative to it; `by_host` if the host bounds the step."""
    if not speeds.measured:
        return OTHER_MARGIN
    return HOST_MARGIN if by_host else MARGIN


def pass_work(cost: Cost, rates: Rates) -> RooflineWork | None:
    """Work of all forwards and backwards of a step; None if the rate of a dtype is not known."""
    speeds = speeds_for(rates)
    if speeds is None:
        return step_time.pass_work(cost, rates)
    if not multiplying(cost) <= speeds.dtypes:
        return None
    first, further = map(_sum, passes(cost, speeds))
    return first.plus(further, cost.micro_batches - 1)


def update_work(cost: Cost, rates: Rates) -> RooflineWork:
    """Work of the gradient norm and of the update."""
    speeds = speeds_for(rates)
    return step_time.update_work(cost, rates) if speeds is None else _sum(update(cost, speeds))


def _sum(queue: Iterable[Queued]) -> RooflineWork:
    working = launching = 0.0
    for one in queue:
        working += one.device
        launching += one.host
    return RooflineWork(working, launching)
