"""Time of a step with what it rests on: timed steps, a roofline of measured rates or of a datasheet, or a plan."""

from dataclasses import dataclass

from assay.api import project
from assay.dashboard.whatif.question import HERE, Question
from assay.errors import UsageError
from assay.estimator import Estimate
from assay.hardware.cluster import DATASHEETS
from assay.report.predicted.sheet import SHEET_ROOFLINE, by_kernels
from assay.units import format_seconds, with_factor, with_margin

_MEASURED = "a roofline at the rates measured on this machine, which ranks stacks better than it times them"
_PLAN = "a plan from datasheets, with 16-bit products and Adam in 32 bits, without overlap"


@dataclass(frozen=True)
class Timing:
    """Seconds of one optimizer step, as text and with their source."""

    seconds: float | None
    text: str
    source: str


def timing(question: Question, found: Estimate) -> Timing:
    """Return the time of a question's step, or why it is not predicted."""
    if question.gpus > 1:
        return _planned(question)
    step = found.step_time
    if step is None:
        return _unknown(question, found)
    if question.device != HERE and found.sheet is not None and step.apart is not None:
        return Timing(step.seconds, with_margin(step.seconds, step.margin or 0.0), by_kernels(found.sheet.sheet))
    if step.margin is not None:
        load = ", while other programs worked" if step.under_load else ""
        source = f"from timed steps of few blocks on this machine{load}"
        return Timing(step.seconds, with_margin(step.seconds, step.margin), source)
    if question.device != HERE:
        return Timing(step.seconds, format_seconds(step.seconds), SHEET_ROOFLINE)
    caveat = found.machine.rates[found.machine.device(found.run.device)].caveat
    return Timing(step.seconds, with_factor(step.seconds, step.factor), f"{_MEASURED}{f'; {caveat}' if caveat else ''}")


def _unknown(question: Question, found: Estimate) -> Timing:
    if found.machine.device(found.run.device) not in found.machine.rates:
        return Timing(None, "not predicted", "`assay machine` measures the rates that it needs")
    whose = "the rates measured here have" if question.device == HERE else "the datasheet has"
    return Timing(None, "not predicted", f"{whose} no product in {', '.join(found.unrated)}")


def _planned(question: Question) -> Timing:
    """Return the time of a plan over several GPUs of one node."""
    if question.device not in DATASHEETS:
        return Timing(None, "not planned", f"links between GPUs are known for {', '.join(DATASHEETS)} only")
    try:
        plan = project(
            *(question.preset, *question.overrides),
            optimizations=question.optimizations or None,
            gpu=question.device,
            gpus_per_node=question.gpus,
        ).plan
    except UsageError as reason:
        return Timing(None, "not planned", str(reason))
    return Timing(plan.step_seconds, format_seconds(plan.step_seconds), _PLAN)
