"""Words on a time that rests on a datasheet, or on operators that were measured on another device."""

from assay.estimator.timing.roofline import SHEET_FACTORS
from assay.estimator.timing.step_time import StepTime
from assay.hardware.kernel_seconds import MEASURED_ON
from assay.units import format_seconds

SHEET_ROOFLINE = (
    "a roofline of the datasheet's peaks: no step is faster, and real ones take {:g} to {:g} times as long"
).format(*SHEET_FACTORS)
PREDICTED = f"predicted by operators measured on one {MEASURED_ON.upper()}, on other devices by their datasheets"


def by_kernels(device: str) -> str:
    """Return what a time by kernels on a device, by its key, rests on."""
    measured = f"by operators measured on one {MEASURED_ON.upper()}"
    return measured if device == MEASURED_ON else f"{measured}, in proportion to both datasheets"


def within(step: StepTime) -> str:
    """Format seconds and their margin as ``"35.2 ms, within ± 15 %"``."""
    margin = "" if step.margin is None else f", within ± {step.margin:.0%}".replace("%", " %")
    return f"{format_seconds(step.seconds)}{margin}"


def longer(step: StepTime) -> str:
    """Return both times of host and device, which work at once, and for which of them a step waits."""
    assert step.apart is not None
    host, device = step.apart
    waits = f"it waits for the {'host' if host > device else 'device'}"
    return f"{format_seconds(host)} to queue the step, {format_seconds(device)} on the device; {waits}"
