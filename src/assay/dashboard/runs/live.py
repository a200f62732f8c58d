"""The course of one run as its log tells it: points of its curves, its phase, and the time left.

A resumed run trains some steps anew. A batch that begins with `resumed_at` therefore takes back the points from that
step on.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, isfinite
from typing import Any

from assay.dashboard.pages import LONGEST
from assay.errors import legible
from assay.launch.progress import Meter
from assay.records.events import (
    BeginEvent,
    BlockEvent,
    EvaluationEvent,
    EvidenceEvent,
    LogEvent,
    NoteEvent,
    StartEvent,
    StepEvent,
    ValuesEvent,
)
from assay.records.evidence import ValueProof
from assay.report.comparison.wording import value_check
from assay.report.run import proof
from assay.store.run_folder import RunSpec
from assay.units import format_seconds

VALUES = "values"
"""Name under which the value check is listed."""
UNMEASURED = "Only Linux tells the peak of a process."
_LARGEST_LOG = 700.0
"""Largest logarithm whose exponential is a float."""
_MOST_DRAWN = 1500
"""Steps of a run that are drawn beside other runs."""


class RunCourse:
    """Digest of one run's log (`dashboard.stream`)."""

    def __init__(self, spec: RunSpec) -> None:
        training = spec.config.training
        self._meter = Meter()
        self._meter.hear(BeginEvent(event="run", steps=training.steps, eval_interval=training.eval_interval))

    def __call__(self, events: Sequence[LogEvent]) -> list[dict[str, Any]]:
        """Return the batches of a piece of the log; each start of a process begins a new one."""
        return [self._batch(piece) for piece in _by_process(events)]

    def _batch(self, events: Sequence[LogEvent]) -> dict[str, Any]:
        steps, evaluations, blocks, proofs = [], [], [], []
        resumed_at = unmeasured = None
        for event in events:
            self._meter.hear(event)
            if isinstance(event, StartEvent):
                resumed_at = event.resumed_at
            elif isinstance(event, StepEvent):
                steps.append(point(event))
            elif isinstance(event, EvaluationEvent):
                evaluations.append([event.step, event.loss])
            elif isinstance(event, BlockEvent) and event.process_peak_bytes is not None:
                blocks.append([self._meter.done, event.process_peak_bytes])
            elif isinstance(event, BlockEvent):
                unmeasured = UNMEASURED
            elif (said := _proof(event)) is not None:
                proofs.append(said)
        left = self._meter.seconds_left
        return {
            "resumed_at": resumed_at,
            "steps": steps,
            "evaluations": evaluations,
            "blocks": blocks,
            "unmeasured": unmeasured,
            "proofs": proofs,
            "phase": legible(self._meter.phase, LONGEST),
            "done": self._meter.done,
            "total": self._meter.steps,
            "left": format_seconds(left) if left else None,
        }


def point(event: StepEvent) -> list[float | None]:
    """Return a step as index, loss, seconds, gradient norm and tokens."""
    return [event.step, event.loss, event.seconds, _norm(event.log_gradient_norm), event.tokens]


def curves(batches: Sequence[Mapping[str, Any]]) -> dict[str, list[list[Any]]]:
    """Return (step, loss, seconds) of steps and (step, loss) of evaluations, without steps that were trained anew.

    Of a long run, every so many steps are left out.
    """
    steps: dict[int, list[Any]] = {}
    evaluations: dict[int, list[Any]] = {}
    for batch in batches:
        if (at := batch["resumed_at"]) is not None:
            steps = {step: one for step, one in steps.items() if step < at}
            evaluations = {step: one for step, one in evaluations.items() if step <= at}
        steps.update((one[0], one[:3]) for one in batch["steps"])
        evaluations.update((one[0], one) for one in batch["evaluations"])
    every = [steps[step] for step in sorted(steps)]
    stride = -(-len(every) // _MOST_DRAWN) or 1
    return {"steps": every[::stride], "evaluations": [evaluations[step] for step in sorted(evaluations)]}


def _norm(logarithm: object) -> float | None:
    """Gradient norm of its logarithm; None if it is no finite number."""
    if isinstance(logarithm, float) and isfinite(logarithm) and logarithm < _LARGEST_LOG:
        return exp(logarithm)
    return None


def _by_process(events: Sequence[LogEvent]) -> Iterator[Sequence[LogEvent]]:
    begin = 0
    for at, event in enumerate(events):
        if isinstance(event, StartEvent) and at > begin:
            yield events[begin:at]
            begin = at
    if events:
        yield events[begin:]


def _proof(event: LogEvent) -> tuple[str, str] | None:
    """Return what an event proves, and a sentence; None for events without one.

    A later proof of the same takes the place of an earlier one. A note to the user proves nothing, and stays.
    """
    if isinstance(event, EvidenceEvent):
        return legible(event.optimization, LONGEST), legible(proof(event.evidence()), LONGEST)
    if isinstance(event, ValuesEvent):
        try:
            return VALUES, legible(f"values: {value_check(ValueProof.model_validate(event.proof))}", LONGEST)
        except ValueError:  # a later version may write other fields
            return None
    return ("", legible(event.text, LONGEST)) if isinstance(event, NoteEvent) else None
