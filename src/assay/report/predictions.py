"""Words on predictions: whether a step fits, what its time rests on, and what a training at its pace takes."""

from assay.cost.simulation.reserved import Interval
from assay.estimator.cost import Training
from assay.estimator.memory_fit import Fit, MemoryFit, StepBatch, fit_within
from assay.estimator.timing.step_time import SHEET_FACTORS, StepTime
from assay.hardware.kernel_seconds import MEASURED_ON
from assay.units import DAY, YEAR, format_bytes, format_count, format_seconds


def batch_words(batch: StepBatch) -> str:
    """Return ``"8 sequences of 1,024 tokens"``, with the micro-batches if there are several."""
    what = "sequence" if batch.sequences == 1 else "sequences"
    parts = f", in {batch.micro_batches} micro-batches" if batch.micro_batches > 1 else ""
    return f"{batch.sequences:,} {what} of {batch.context:,} tokens{parts}"


def fit_words(fit: Fit) -> str:
    """Return whether a step fits, and its need beside the memory of the device."""
    need = span(format_bytes(fit.need.low), format_bytes(fit.need.high))
    return f"{fit.verdict}: {need} of {format_bytes(fit.memory_bytes)}, with {batch_words(fit.batch)}"


def fit_sentence(need: Interval, memory_bytes: int, place: str) -> str:
    """Return whether a need fits a place such as ``one H100``, as the begin of a sentence."""
    low, high = format_bytes(need.low), format_bytes(need.high)
    match fit_within(need, memory_bytes):
        case MemoryFit.YES:
            return f"It fits {place} with {format_bytes(memory_bytes - need.high)} to spare"
        case MemoryFit.NO:
            lacks = span(format_bytes(need.low - memory_bytes), format_bytes(need.high - memory_bytes))
            return f"It does not fit {place}, which would need {lacks} more"
    return f"It may fit {place}, or just not: it needs {span(low, high)} of {format_bytes(memory_bytes)}"


CAPTURED_FIT = "cannot be told: captured graphs have a pool of their own, and what it reserves is not predicted"
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


_UNITS = {"years": YEAR, "days": DAY, "hours": 3600, "minutes": 60}
"""Seconds of a unit; each is used from two of it on."""


def span(low: str, high: str) -> str:
    """Return ``"3 to 5"``, or one text if both are equal."""
    return low if low == high else f"{low} to {high}"


def hours_words(found: Training) -> str:
    """Return the time from and to, such as ``"15 to 35 hours"``; without a known error it is a bound."""
    low, high = (one * 3600 for one in found.hours)
    unit, size = _unit(high)
    return f"{_between(low / size, high / size, bound=found.spread is None)} {unit}"


def pace_words(found: Training) -> str:
    """Return the time by a plan, and from and to by its errors, in one unit."""
    unit, size = _unit(found.hours[1] * 3600)
    by_plan = found.seconds / size
    return f"{by_plan:{',.0f' if by_plan >= 100 else '.3g'}} {unit} by the plan; {hours_words(found)} by its errors"


def _unit(seconds: float) -> tuple[str, int]:
    return next(((name, size) for name, size in _UNITS.items() if seconds >= 2 * size), ("seconds", 1))


def money_words(found: Training) -> str:
    """Return the money from and to; empty without a price."""
    return "" if found.money is None else _between(*found.money, bound=found.spread is None)


def training_words(found: Training) -> str:
    """Return the sentence on a training, without its stop."""
    cost = f" and cost {money_words(found)}" if found.money is not None else ""
    if cost and found.tokens == 1:
        cost = f" and costs {money_words(found)}"
    return f"{trained_words(found)} {hours_words(found)}{cost}"


def trained_words(found: Training) -> str:
    """Return ``"10.0B tokens take"``; of fewer tokens than a step, with the tokens of that, which is trained whole."""
    step = f", fewer than the {found.tokens_per_step:,} of one step," if found.tokens < found.tokens_per_step else ""
    return f"{count_of_tokens(found.tokens)}{step} {'takes' if found.tokens == 1 else 'take'}"


def count_of_tokens(tokens: float) -> str:
    """Return ``"10.0B tokens"`` or ``"1 token"``."""
    return "1 token" if tokens == 1 else f"{format_count(tokens)} tokens"


def _between(low: float, high: float, *, bound: bool) -> str:
    words = span(_short(low), _short(high))
    return f"at least {words}" if bound else words


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
