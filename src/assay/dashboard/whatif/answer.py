"""The answer to a question: memory over the step, its time, its fit, and what can be added to the stack.

Everything is arithmetic of the ledger. Answers are kept, so a reader who moves a slider back waits for nothing. An
answer says whether the step fits the device that was asked for. All other devices take longer, so they are an answer of
their own (`fitting`), and the page fetches them after it.

Memory is shown by category over the instants of a step, with what a started process or a driver takes around it. An
instant is the highest of its part of the step: forward and backward by block, and the update. Its categories sum to
the bytes that are alive.

The time of a step comes with its basis: timed steps, a roofline of measured rates or of a datasheet, or a plan.

Sentences on techniques are those of `assay train`: each is added to the run, and the stack is checked on the machine.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from assay import api
from assay.config.home import Home
from assay.config.mesh import AXES
from assay.config.run import Run, Spec
from assay.cost.simulation.timeline import CATEGORIES
from assay.dashboard.whatif.places import (
    KnownMachines,
    WhatIfFit,
    absent,
    fit_at,
    fit_here,
    fit_sentence,
    fit_words,
    fits,
    need_on_gpu,
)
from assay.dashboard.whatif.question import HERE, WhatIfQuestion, cutting
from assay.errors import UsageError
from assay.estimator import Estimate, estimate
from assay.hardware import Machine
from assay.hardware.cluster import DATASHEETS
from assay.hardware.devices import DEVICES
from assay.optimizations import Optimization, catalogue, check, check_divided, mesh_of, resolve_run
from assay.report.estimate import parts_table
from assay.report.kit.blocks import Facts, Table
from assay.report.predictions import SHEET_ROOFLINE, by_kernels
from assay.units import format_bytes, format_count, format_flops, format_seconds, parse_bytes, with_factor, with_margin

_KEPT_FITS = 32
"""Answers on devices that are kept."""
_REFERENCE = "a100"
"""Device whose ledger serves all absent devices."""


@dataclass(frozen=True)
class Technique:
    """A line of the menu."""

    name: str
    title: str
    saves: str
    pays: str
    on: bool
    fixed: bool
    """True if the preset turns it on, so that the menu cannot turn it off."""
    why_not: str
    """Why it cannot be added to the stack; empty if it can."""

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain values."""
        return asdict(self)


def techniques(question: WhatIfQuestion, machine: Machine) -> tuple[Technique, ...]:
    """Return all techniques but the one of the menu of micro-batches: the usual ones, and then the others.

    In a stack that is itself not possible every technique can be changed, because any of them may be at fault.
    """
    try:
        run = question.run()
        check(resolve_run(run), machine)
    except UsageError:
        return _menu(question, None, machine)
    return _menu(question, run, machine)


def _menu(question: WhatIfQuestion, run: Run | None, machine: Machine) -> tuple[Technique, ...]:
    given = {one.name for one in WhatIfQuestion(preset=question.preset).run().optimizations}
    added = set(_names_of(question.stack))
    found = []
    for name, kind in sorted(catalogue().items(), key=lambda one: not one[1].usual):
        if name == cutting():
            continue
        on = name in given or name in added
        why = "" if on or run is None else _why_not(kind, run, machine)
        found.append(Technique(name, kind.title, kind.saves, kind.pays, on, name in given, why))
    return tuple(found)


def _why_not(kind: type[Optimization], run: Run, machine: Machine) -> str:
    """Return the sentence that refuses a technique with its default fields; empty if none does."""
    try:
        specs = (*run.optimizations, kind().spec())
        check(resolve_run(run.model_copy(update={"optimizations": specs})), machine)
    except UsageError as reason:
        return str(reason)
    return ""


def _names_of(stack: str) -> list[str]:
    """Names of a stack as it is written; none if it cannot be read."""
    try:
        return [one.name for one in Spec.parse_stack(stack)] if stack else []
    except ValueError:
        return []


def over_instants(found: Estimate) -> tuple[dict[str, Any], Table]:
    """Return the figure and the parts of the peak.

    The figure has labels of the instants, the bytes of each category at each of them, and the place of the peak.
    """
    return _figure(found), parts_table(found.peak_parts, found.timeline.peak)


def _figure(found: Estimate) -> dict[str, Any]:
    instants, peak = found.timeline.instants, found.timeline.peak
    unit = format_bytes(peak.nbytes).rpartition(" ")[2]
    names = list(CATEGORIES)
    return {
        "unit": unit,
        "unit_bytes": parse_bytes(f"1 {unit}"),
        "instants": [str(moment) for moment in instants],
        "phases": [moment.phase for moment in instants],
        "alive": [format_bytes(moment.nbytes) for moment in instants],
        "layers": [
            {
                "name": name,
                "series": 1 + names.index(name),
                "bytes": list(counts),
                "texts": list(map(format_bytes, counts)),
            }
            for name, counts in found.composed.layers().items()
        ],
        "peak": instants.index(peak),
        "peak_bytes": peak.nbytes,
    }


_MEASURED = "a roofline at the rates measured on this machine, which ranks stacks better than it times them"
_PLAN = "a plan from datasheets, with 16-bit products and Adam in 32 bits, without overlap"


@dataclass(frozen=True)
class Timing:
    """Seconds of one optimizer step, as text and with their source."""

    seconds: float | None
    text: str
    source: str

    @property
    def words(self) -> str:
        """The time as the end of a sentence, or why it is not known."""
        if self.seconds is None:
            return f"; how long a step takes is {self.text}: {self.source}."
        bound = "at least" if self.source == SHEET_ROOFLINE else "about"
        return f", {bound} {format_seconds(self.seconds)} a step."


def timing(question: WhatIfQuestion, found: Estimate) -> Timing:
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


def _unknown(question: WhatIfQuestion, found: Estimate) -> Timing:
    if found.machine.device(found.run.device) not in found.machine.rates:
        return Timing(None, "not predicted", "`assay machine` measures the rates that it needs")
    whose = "the rates measured here have" if question.device == HERE else "the datasheet has"
    return Timing(None, "not predicted", f"{whose} no product in {', '.join(found.unrated)}")


def _planned(question: WhatIfQuestion) -> Timing:
    """Return the time of a plan over several GPUs of one node."""
    if question.device not in DATASHEETS:
        return Timing(None, "not planned", f"links between GPUs are known for {', '.join(DATASHEETS)} only")
    try:
        planned = api.plan(
            *(question.preset, *question.overrides),
            optimizations=question.optimizations or None,
            gpu=question.device,
            gpus_per_node=question.gpus,
        ).plan
    except UsageError as reason:
        return Timing(None, "not planned", str(reason))
    return Timing(planned.step_seconds, format_seconds(planned.step_seconds), _PLAN)


_KEPT = 8
"""Answers that are kept: enough for a slider that moves back. The ledger of a deep compiled model takes 15 MB."""


@dataclass(frozen=True)
class WhatIfPrediction:
    """A step as it is predicted."""

    found: Estimate
    """The fullest of the ranks that were looked at."""
    time: Timing
    fit: WhatIfFit
    """Whether it fits the device that was asked for."""
    memory: dict[str, Any]
    """Figure of memory over the step (`over_instants`)."""
    parts: Table
    """Parts of the peak."""


@dataclass(frozen=True)
class WhatIfAnswer:
    """Answer to a question: a prediction, or the sentence of why there is none."""

    question: WhatIfQuestion
    predicted: WhatIfPrediction | None
    refusal: str
    techniques: tuple[Technique, ...]
    read: bool = True
    """False if the address could not be read, so that the question is only the default."""

    @property
    def sentence(self) -> str:
        """The answer in one sentence: whether the step fits, and how long it takes."""
        if self.predicted is None:
            return self.refusal
        gpus, fit = self.question.gpus, self.predicted.fit
        of = "one" if gpus == 1 else f"each of {gpus}"
        place = "this machine" if self.question.device == HERE else f"{of} {fit.device}"
        return f"{fit_sentence(fit, place)}{self.predicted.time.words}"

    @property
    def facts(self) -> Facts:
        """The figures of the answer that are read first."""
        return Facts.of(()) if self.predicted is None else Facts.of(_facts(self.question, self.predicted))


def answer(question: WhatIfQuestion, home: Home) -> WhatIfAnswer:
    """Return the answer to a question. A setting or stack that is not possible is a sentence of the answer."""
    return answer_at(question, KnownMachines.of(question, home))


@lru_cache(maxsize=_KEPT)
def answer_at(question: WhatIfQuestion, places: KnownMachines) -> WhatIfAnswer:
    """Return the answer to a question with machines that are known."""
    lines = techniques(question, places.asked)
    try:
        found = fullest(question, places.asked)
        predicted = WhatIfPrediction(found, timing(question, found), fit_at(question, found), *over_instants(found))
    except UsageError as reason:
        return WhatIfAnswer(question, None, str(reason), lines)
    return WhatIfAnswer(question, predicted, "", lines)


def fullest(question: WhatIfQuestion, machine: Machine) -> Estimate:
    """Return the step on the rank with the highest peak, of the first rank of each stage of a pipeline.

    Ranks of one stage hold equal shares, or shares whose largest is that of the first rank. Raises `UsageError`.
    """
    run = question.run()
    check_divided(run)
    mesh = mesh_of(run)
    first, *others = (estimate(run, machine, mesh.rank({AXES[0]: stage})) for stage in range(mesh.pp))
    return max((first, *others), key=lambda one: one.timeline.peak.nbytes) if others else first


def _facts(question: WhatIfQuestion, predicted: WhatIfPrediction) -> Iterator[tuple[str, str]]:
    found, time = predicted.found, predicted.time
    run, seconds = found.run, time.seconds
    yield "peak of tensors", format_bytes(found.timeline.peak.nbytes)
    yield "at", str(found.timeline.peak)
    yield "step time", f"{time.text}, {time.source}" if seconds else f"{time.text}: {time.source}"
    if seconds:
        yield "tokens/s", format_count(run.tokens_per_step / seconds)
    yield predicted.fit.device, fit_words(predicted.fit)
    yield "tokens per step", format_count(run.tokens_per_step)
    yield "parameters", format_count(found.parameters)
    of = "" if question.gpus == 1 else " on each GPU"
    yield f"work of a step{of}", " + ".join(f"{format_flops(count)} in {dtype}" for dtype, count in found.flops.items())
    yield "saved for backward", format_bytes(found.timeline.saved_bytes)
    yield "optimizations", " + ".join(map(str, run.optimizations)) or "none"


def fitting(question: WhatIfQuestion, home: Home) -> tuple[WhatIfFit, ...]:
    """Return the devices for a question, or the reasons why a fit is not known; none if the step is not predicted."""
    return _fitting(question, KnownMachines.of(question, home))


@lru_cache(maxsize=_KEPT_FITS)
def _fitting(question: WhatIfQuestion, places: KnownMachines) -> tuple[WhatIfFit, ...]:
    known = answer_at(question, places).predicted
    if known is None:
        return ()
    local, away = question.device == HERE, replace(question, device=_REFERENCE)
    here = () if question.gpus > 1 else (known.fit if local else _fit_here(question, places.here),)
    try:
        found = fullest(away, absent(_REFERENCE)) if local else known.found
        need = need_on_gpu(found) if local else (known.fit.need, known.fit.why_not)
        return (*here, *fits(found, need))
    except UsageError as reason:
        return (*here, WhatIfFit("a GPU", DEVICES[_REFERENCE].memory_bytes, None, str(reason)))


def _fit_here(question: WhatIfQuestion, here: Machine) -> WhatIfFit:
    try:
        return fit_here(fullest(replace(question, device=HERE), here))
    except UsageError as reason:
        return WhatIfFit("this machine", here.memory_bytes, None, str(reason))
