"""The predicted time of a step on a GPU that is known by its datasheet, with the margin that such predictions have.

Margins are those of docs/measured/predicted_times.md: what steps that were measured, and took no part in any fit, are
within. On the H200, whose operators were measured, all of them were nearer. Where the host bounds a step, its speed is
known by the launch costs of one machine only. The margin of other devices was held against one published study.
"""

from assay.cost import Cost, multiplying
from assay.estimator.timing.gpu_step import GpuStep, gpu_step
from assay.estimator.timing.step_time import StepTime
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
