"""The answer to a question: memory over the step, its time, its fit, and what can be added to the stack.

Everything is arithmetic of the ledger. Answers are kept, so a reader who moves a slider back waits for nothing. An
answer says whether the step fits the device that was asked for. All other devices take longer, so they are an answer of
their own (`fitting`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from assay.config.home import Home
from assay.config.mesh import AXES
from assay.dashboard.whatif.fits import Fit, fit_at, fit_words
from assay.dashboard.whatif.memory import over_instants
from assay.dashboard.whatif.places import Places
from assay.dashboard.whatif.question import Question
from assay.dashboard.whatif.techniques import Technique, techniques
from assay.dashboard.whatif.timing import Timing, timing
from assay.errors import UsageError
from assay.estimator import Estimate, estimate
from assay.hardware import Machine
from assay.optimizations import check_divided, mesh_of
from assay.report.blocks import Facts, Table
from assay.units import format_bytes, format_count, format_flops

_KEPT = 8
"""Answers that are kept: enough for a slider that moves back. The ledger of a deep compiled model takes 15 MB."""


@dataclass(frozen=True)
class Predicted:
    """A step as it is predicted."""

    found: Estimate
    """The fullest of the ranks that were looked at."""
    time: Timing
    fit: Fit
    """Whether it fits the device that was asked for."""
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
    return answer_at(question, Places.of(question, home))


@lru_cache(maxsize=_KEPT)
def answer_at(question: Question, places: Places) -> Answer:
    """Return the answer to a question with machines that are known."""
    lines = techniques(question, places.asked)
    try:
        found = fullest(question, places.asked)
        predicted = Predicted(found, timing(question, found), fit_at(question, found), *over_instants(found))
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
    first, *others = (estimate(run, machine, mesh.rank({AXES[0]: stage})) for stage in range(mesh.pp))
    return max((first, *others), key=lambda one: one.timeline.peak.nbytes) if others else first


def _facts(question: Question, predicted: Predicted) -> Iterator[tuple[str, str]]:
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
