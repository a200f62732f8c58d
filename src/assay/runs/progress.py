"""How far a run has come, in words, out of its events: for whoever waits for it, in a file or a pipe.

The meter only listens to the run's events. Speed and what is left are those of a usual one of the last steps, since the
first are slow with compilation and tracing; from the first alone nothing is foretold.
"""

import sys
import time
from collections import deque
from types import TracebackType
from typing import Self

from assay.runs.log import Event
from assay.units import format_count, format_seconds

_RECENT_STEPS = 20
_QUIET_SECONDS = 5.0
"""Between two lines where nothing can be redrawn."""


class Meter:
    """How far a run has come."""

    def __init__(self) -> None:
        self.steps = 0
        self.done = 0
        self.phase = "preparing"
        self.loss: float | None = None
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT_STEPS)

    def hear(self, event: Event) -> None:
        """Take in one event."""
        kind = event["event"]
        if kind == "run":
            self.steps, self.phase = event["steps"], "starting"
        elif kind == "start":
            self.done = event.get("resumed_at", 0)
        elif kind == "phase":
            self.phase = event["name"].replace("_", " ")
        elif kind == "step":
            self.done, self.loss = event["step"] + 1, event["loss"]
            self._recent.append((event["seconds"], event["tokens"]))
        elif kind == "interrupting":
            self.phase = "stopping"

    def figures(self) -> str:
        """Loss, speed and the time that is left, as far as they are known."""
        parts = [] if self.loss is None else [f"loss {self.loss:.4f}"]
        seconds, tokens = sorted(self._recent)[(len(self._recent) - 1) // 2] if self._recent else (0.0, 0)
        if seconds > 0:
            parts.append(f"{format_count(tokens / seconds)} tokens/s")
            left = (self.steps - self.done) * seconds if len(self._recent) > 1 else 0.0
            parts += [f"{format_seconds(left)} left"] if left > 0 else []
        return ", ".join(parts)


def remark(event: Event) -> str | None:
    """The sentence that an event is worth beside the meter."""
    kind = event["event"]
    if kind == "run":
        return f"run {event['run']}: {event['steps']} steps of {event['tokens_per_step']} tokens"
    if kind == "prepare" and event["fraction"] is None:
        return str(event["message"])
    if kind == "note":
        return str(event["text"])
    if kind == "start" and event.get("resumed_at"):
        return f"going on after step {event['resumed_at']}"
    if kind == "evidence":
        return f"{event['optimization']}: {event['observed']}{'' if event['verdict'] else ' — it took no effect'}"
    if kind == "evaluation" and event["loss"] is not None:
        return f"after {event['step']} steps: validation loss {event['loss']:.4f}"
    if kind == "interrupting":
        return "stopping after this step, to save; Ctrl-C again to stop at once"
    return None


class Lines:
    """Plain lines, no more often than a reader of a log can bear."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __call__(self, event: Event) -> None:
        """Print what the event is worth."""
        self._meter.hear(event)
        text = remark(event)
        if text is None and event["event"] == "step" and self._due():
            text = f"step {self._meter.done}/{self._meter.steps}, {self._meter.figures()}"
        if text is not None:
            print(text, file=sys.stderr, flush=True)
            self._last = time.monotonic()

    def _due(self) -> bool:
        return self._meter.done == self._meter.steps or time.monotonic() - self._last >= _QUIET_SECONDS
