"""The predicted time of a step of a script, from the operators that the observer kept of it."""

from assay.absent.gpus import ABSENT, AbsentDevice
from assay.absent.observation import Observation
from assay.estimator.timing.dispatched import operator_launches, untimed_operators
from assay.estimator.timing.gpu_time import margin_on
from assay.estimator.timing.queue import WAIT, play
from assay.estimator.timing.step_time import StepTime
from assay.hardware.kernel_seconds import speeds_of


def key_of(device: AbsentDevice) -> str:
    """Return the key of a device among datasheets."""
    return next(key for key, one in ABSENT.items() if one == device)


def step_time(seen: Observation | None, device: AbsentDevice) -> StepTime | str | None:
    """Return the time of a step on a device, or why there is none; None if no times were asked for.

    The queue ends with a wait, so the device is idle when a step begins.
    """
    kept = None if seen is None else seen.operators
    if seen is None or not seen.timed:
        return None
    if kept is None:
        return "the third step had no operators to keep: it was not reached, or its code is compiled or captured"
    if missing := untimed_operators(kept.calls):
        return f"nobody has measured {', '.join(missing)}"
    speeds = speeds_of(key_of(device))
    try:
        played = play((*operator_launches(kept.calls, speeds), WAIT))
    except KeyError as dtype:
        return f"the datasheet has no products in {dtype.args[0]}"
    margin = margin_on(speeds, by_host=played.host > played.device)
    return StepTime(played.seconds, margin, apart=(played.host, played.device))
