"""The answer to a question: memory over the step, its time, what fits where, and what can be added to the stack.

Everything is arithmetic of the ledger. Answers are kept, so a reader who moves a slider back waits for nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from assay.config.home import Home
from assay.config.mesh import AXES
from assay.dashboard.whatif.fits import Fit, fit_here, fits
from assay.dashboard.whatif.memory import over_instants
from assay.dashboard.whatif.places import absent, machine_of, this_machine
from assay.dashboard.whatif.question import HERE, Question
from assay.dashboard.whatif.techniques import Technique, techniques
from assay.dashboard.whatif.timing import Timing, timing
from assay.errors import UsageError
from assay.estimator import Estimate, estimate
from assay.hardware import Machine
from assay.hardware.devices import DEVICES
from assay.optimizations import check_divided, mesh_of
from assay.report.blocks import Facts, Table
from assay.units import format_bytes, format_count, format_flops

_KEPT = 256
"""Answers that are kept."""
_REFERENCE = "a100"
"""Device whose ledger serves all absent devices."""


@dataclass(frozen=True)
class Predicted:
    """A step as it is predicted."""

    found: Estimate
    """The fullest of the ranks that were looked at."""
    time: Timing
    fits: tuple[Fit, ...]
    memory: dict[str, Any]
    """Figure of memory over the step (`over_instants`)."""
    parts: Table
    """Parts of the peak."""


@dataclass(frozen=True)
class Answer:
    """Answer to a question: a prediction, or the sentence of why there is none."""

    question: Question
    predicted: Predicted | None
    refusal: str
    techniques: tuple[Technique, ...]
    read: bool = True
    """False if the address could not be read, so that the question is only the default."""

    @property
    def facts(self) -> Facts:
        """The figures of the answer that are read first."""
        return Facts.of(()) if self.predicted is None else Facts.of(_facts(self.question, self.predicted))


def answer(question: Question, home: Home) -> Answer:
    """Return the answer to a question. A setting or stack that is not possible is a sentence of the answer."""
    return _answer(question, _Place(machine_of(question, home), this_machine(home)))


class _Place:
    """Machines of an answer, compared by identity: they are kept while nothing about them changes."""

    def __init__(self, asked: Machine, here: Machine) -> None:
        self.asked, self.here = asked, here

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and self.asked is other.asked and self.here is other.here

    def __hash__(self) -> int:
        return hash((id(self.asked), id(self.here)))


@lru_cache(maxsize=_KEPT)
def _answer(question: Question, place: _Place) -> Answer:
    lines = techniques(question, place.asked)
    try:
        found = fullest(question, place.asked)
        there = _fits(question, found, place.here)
        memory, parts = over_instants(found)
        predicted = Predicted(found, timing(question, found), there, memory, parts)
    except UsageError as reason:
        return Answer(question, None, str(reason), lines)
    return Answer(question, predicted, "", lines)


def fullest(question: Question, machine: Machine) -> Estimate:
    """Return the step on the rank with the highest peak, of the first rank of each stage of a pipeline.

    Ranks of one stage hold equal shares, or shares whose largest is that of the first rank. Raises `UsageError`.
    """
    run = question.run()
    check_divided(run)
    mesh = mesh_of(run)
    ranks = [mesh.rank({AXES[0]: stage}) for stage in range(mesh.pp)]
    return max((estimate(run, machine, rank) for rank in ranks), key=lambda one: one.timeline.peak.nbytes)


def place_of(found: Answer) -> Fit | None:
    """Return the row of the device that was asked for; None without a prediction."""
    rows = () if found.predicted is None else found.predicted.fits
    name = None if found.question.device == HERE else DEVICES[found.question.device].name
    return next((one for one in rows if name in (None, one.device)), None)


def _fits(question: Question, found: Estimate, here: Machine) -> tuple[Fit, ...]:
    """Return the rows of the table: this machine, unless several GPUs are asked for, then all absent devices."""
    local, away = (question.device == HERE), replace(question, device=_REFERENCE)
    rows = () if question.gpus > 1 else (_row(replace(question, device=HERE), here, found if local else None),)
    try:
        return (*rows, *fits(fullest(away, absent(_REFERENCE)) if local else found))
    except UsageError as reason:
        return (*rows, Fit("a GPU", DEVICES[_REFERENCE].memory_bytes, None, str(reason)))


def _row(question: Question, here: Machine, known: Estimate | None) -> Fit:
    """Return this machine's row, from the estimate if it is known."""
    try:
        return fit_here(known or fullest(question, here))
    except UsageError as reason:
        return Fit("this machine", here.memory_bytes, None, str(reason))


def _facts(question: Question, predicted: Predicted) -> Iterator[tuple[str, str]]:
    found, time = predicted.found, predicted.time
    run, seconds = found.run, time.seconds
    yield "peak of tensors", format_bytes(found.timeline.peak.nbytes)
    yield "at", str(found.timeline.peak)
    yield "step time", f"{time.text}, {time.source}" if seconds else f"{time.text}: {time.source}"
    if seconds:
        yield "tokens/s", format_count(run.tokens_per_step / seconds)
    yield "tokens per step", format_count(run.tokens_per_step)
    yield "parameters", format_count(found.parameters)
    of = "" if question.gpus == 1 else " on each GPU"
    yield f"work of a step{of}", " + ".join(f"{format_flops(count)} in {dtype}" for dtype, count in found.flops.items())
    yield "saved for backward", format_bytes(found.timeline.saved_bytes)
    yield "optimizations", " + ".join(map(str, run.optimizations)) or "none"
