"""Progress of a run in words, computed from its events, for a reader of a terminal, file or pipe.

The meter only reads the run's events. Speed and remaining time follow from the median of the last steps, because the
first ones are slow with compilation and tracing. A single step gives no remaining time.
"""

import sys
import time
from math import exp
from types import TracebackType
from typing import Self

from assay.errors import legible
from assay.hardware.resident import Resident
from assay.records.events import (
    BeginEvent,
    EvaluationEvent,
    EvidenceEvent,
    InterruptingEvent,
    LogEvent,
    NoteEvent,
    PhaseEvent,
    PrepareEvent,
    ProgressEvent,
    StartEvent,
    StepEvent,
    event_of,
)
from assay.store.event_log import Event
from assay.units import format_bytes, format_count, format_seconds

_RECENT_STEPS = 20
_WITHOUT_STEPS = frozenset({"import", "build", "evaluation", "checkpoint", "memory pass", "gradients", "stopping"})
"""Phases in which no training step ends."""

_LARGEST_LOG = 700.0
"""Largest logarithm whose exponential is a float."""

_LONG_SECONDS = 2.0
"""Time after which a phase of unknown length shows its elapsed time."""

_QUIET_SECONDS = 5.0
"""Least time between two lines of output that cannot be redrawn."""


class Meter:
    """Progress of a run, and the remaining time of its current phase."""

    def __init__(self) -> None:
        self.steps = 0
        self.done = 0
        self.phase = "preparing"
        self.loss: float | None = None
        self._rate: float | None = None
        self._log_norm: float | None = None
        self._ideal: float | None = None
        """Seconds of a step at the peak of the device; None if that is unknown."""
        self._resident: Resident | None = None
        self._recent: tuple[tuple[float, int], ...] = ()
        """Seconds and tokens of the last steps; replaced as a whole, because a display reads it from another thread."""
        self._counted = "tokens"
        """Word for the tokens of a step; those of a user's own batches are targets."""
        self._eval_interval = 0
        self._part = (0, 0)
        """Completed parts of the current phase, and their number."""
        self._since = time.monotonic()
        self._took: dict[str, float] = {}
        """Seconds that each phase took the last time."""

    def hear(self, event: LogEvent) -> None:
        """Update the meter with one event."""
        match event:
            case BeginEvent():
                self.steps, self.phase = event.steps, "starting"
                self._eval_interval, self._counted = event.eval_interval, event.counted
                work, peak = event.model_flops, event.peak_flops
                self._ideal = work / peak if work and peak else None
                self._resident = None if event.pid is None else Resident(event.pid)
            case StartEvent():
                self.done = event.resumed_at
            case PhaseEvent():
                self._enter(event.name.replace("_", " "))
            case ProgressEvent():
                self._part = (event.done, event.total)
            case StepEvent():
                self.done, self.loss = event.step + 1, event.loss
                self._rate, self._log_norm = event.learning_rate, event.log_gradient_norm
                self._recent = (*self._recent, (event.seconds, event.tokens))[-_RECENT_STEPS:]
            case InterruptingEvent():
                self._enter("stopping")

    @property
    def position(self) -> tuple[int, int]:
        """Completed and total number: parts of a phase in which no step ends, steps otherwise."""
        return self._part if self.phase in _WITHOUT_STEPS and self._part[1] else (self.done, self.steps)

    def figures(self) -> str:
        """Loss, learning rate, gradient norm, speed, share of the peak, memory and remaining time, as far as known."""
        return ", ".join(filter(None, self.lines()))

    def lines(self) -> tuple[str, str]:
        """Two lines of these figures: the training, and its speed."""
        if self.phase in _WITHOUT_STEPS:
            left = self._time_here()
        else:
            left = [f"{format_seconds(self.seconds_left)} left"] if self.seconds_left else []
        return ", ".join(self._training()), ", ".join([*self._speed(), *self._memory(), *left])

    @property
    def seconds_left(self) -> float | None:
        """Seconds of the remaining steps, at the median of the last ones; None before the second step."""
        recent = sorted(self._recent)
        if len(recent) < 2:
            return None
        return self._left(recent[(len(recent) - 1) // 2][0])

    def _training(self) -> list[str]:
        found = [] if self.loss is None else [f"loss {self.loss:.4f}"]
        if self._rate is not None:
            found.append(f"learning rate {self._rate:.3g}")
        if self._log_norm is not None and self._log_norm < _LARGEST_LOG:
            found.append(f"gradient norm {exp(self._log_norm):.3g}")
        return found

    def _speed(self) -> list[str]:
        """Seconds of a step, tokens in a second, and the share of the peak; empty in a phase without steps."""
        recent = sorted(self._recent)
        seconds, tokens = recent[(len(recent) - 1) // 2] if recent else (0.0, 0)
        if seconds <= 0 or self.phase in _WITHOUT_STEPS:
            return []
        share = [] if self._ideal is None else [f"MFU {self._ideal / seconds:.1%}"]
        return [f"{format_seconds(seconds)} a step", f"{format_count(tokens / seconds)} {self._counted}/s", *share]

    def _memory(self) -> list[str]:
        held = None if self._resident is None else self._resident.nbytes
        return [] if held is None else [format_bytes(held)]

    def _enter(self, phase: str) -> None:
        now = time.monotonic()
        self._took[self.phase] = now - self._since
        self.phase, self._since, self._part = phase, now, (0, 0)

    def _left(self, step_seconds: float) -> float:
        """Seconds of the remaining steps, and of the evaluations among them once one has been timed."""
        left = self.steps - self.done
        due = left // self._eval_interval if self._eval_interval else 0
        return left * step_seconds + due * self._took.get("evaluation", 0.0)

    def _time_here(self) -> list[str]:
        """Remaining time of a phase without steps, from its parts or its last duration; otherwise its elapsed time."""
        spent, (done, total) = time.monotonic() - self._since, self._part
        left = spent / done * (total - done) if done else self._took.get(self.phase, 0.0) - spent
        if left > 0:
            return [f"{format_seconds(left)} left"]
        return [f"for {format_seconds(spent)}"] if spent >= _LONG_SECONDS else []


def remark(event: LogEvent) -> str | None:
    """The sentence to print for an event, in addition to the meter; None for most events."""
    match event:
        case BeginEvent():
            return f"run {event.run}: {event.steps} steps of {event.tokens_per_step} {event.counted}"
        case PrepareEvent(fraction=None):
            return event.message
        case NoteEvent():
            return event.text
        case StartEvent() if event.resumed_at:
            return f"continuing after step {event.resumed_at}"
        case EvidenceEvent():
            return f"{event.optimization}: {event.observed}{'' if event.verdict else ' — it took no effect'}"
        case EvaluationEvent() if event.loss is not None:
            error = f" ± {event.standard_error:.4f}" if event.standard_error else ""
            return f"after {event.step} steps: validation loss {event.loss:.4f}{error}"
        case InterruptingEvent():
            return "stopping after this step, to save; Ctrl-C again to stop at once"
    return None


class RunLines:
    """Prints progress as plain lines: remarks at once, figures every `_QUIET_SECONDS` and at the last step."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __call__(self, line: Event) -> None:
        """Print the line for an event, if it has one."""
        event = event_of(line)
        self._meter.hear(event)
        text = remark(event)
        if text is None and isinstance(event, StepEvent) and self._due():
            text = f"step {self._meter.done}/{self._meter.steps}, {self._meter.figures()}"
        elif text is None and isinstance(event, ProgressEvent) and self._due():
            done, total = self._meter.position
            text = ", ".join(filter(None, (f"{self._meter.phase} {done}/{total}", self._meter.figures())))
        if text is not None:
            print(legible(text), file=sys.stderr, flush=True)
            self._last = time.monotonic()

    def _due(self) -> bool:
        done = self._meter.done == self._meter.steps and self._meter.phase not in _WITHOUT_STEPS
        return done or time.monotonic() - self._last >= _QUIET_SECONDS
