"""The content of a copy: a run's configuration, its series by step, and its summary, from its record and its log.

The axis is the number of completed steps: the loss of the first step is at 1, and an evaluation after 100 steps is at
100. A log has no clock for each step, so a row's time is the start of its process plus the seconds of its steps.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from assay.records.events import BlockEvent, EvaluationEvent, LogEvent, StartEvent, StepEvent
from assay.records.run import RunResult
from assay.report.blocks import leaves
from assay.report.run import stack_summary
from assay.store.run_folder import RunSpec
from assay.tracking.base import Ending, Row, Sheet, Value, text

_FIGURES = (
    *("steps", "tokens", "parameters", "train_loss", "loss_spread", "val_loss", "val_perplexity"),
    *("val_bits_per_byte", "val_standard_error", "tokens_per_second", "first_step_seconds", "skipped_steps"),
)


def sheet(spec: RunSpec, title: str = "", group: str = "") -> Sheet:
    """Return what is known of a run when it begins. The title is by default its preset and its optimizations."""
    stack = stack_summary(spec.config)
    named = title or f"{spec.preset or 'run'}, {stack}"
    return Sheet(spec.id, text(named), text(group), _epoch(spec.created), config(spec))


def config(spec: RunSpec) -> dict[str, Value]:
    """Return the configuration with flat keys, ``optimizations`` as after ``--with``, and every field of each."""
    run = spec.config
    fields = {one.name: one.fields for one in run.optimizations}
    values = {**run.model_dump(mode="json", exclude={"optimizations"}), "optimization": fields}
    return {"optimizations": text(stack_summary(run)), "run": text(spec.id), **_plain(leaves(values))}


def ending(result: RunResult, time: float) -> Ending:
    """Return the summary of a result: losses, times, peaks measured and predicted, and the verdict of each proof."""
    found: dict[str, Any] = {name: getattr(result, name) for name in _FIGURES}
    found |= {"run": result.run, "status": result.status.value, "reason": result.reason}
    step, predicted = result.step_seconds, result.predicted
    found["step_seconds"] = None if step is None else step.model_dump()
    found["memory"] = result.memory.model_dump(exclude={"phases", "saved_bytes"})
    found["predicted"] = None if predicted is None else predicted.model_dump(exclude={"ranks"})
    proofs: dict[str, Any] = {one.optimization: one.verdict for one in result.evidence}
    observed = {one.optimization: one.observed for one in result.evidence}
    if result.values is not None and result.values.checked:
        proofs["values"] = result.values.verdict
    flat = leaves({**found, "proof": proofs, "observed": observed})
    return Ending(result.status, result.steps, time, _plain(flat))


class Series:
    """Rows of a run's log, which is read as it grows."""

    def __init__(self, started: float) -> None:
        self.rows: list[Row] = []
        """All valid rows so far."""
        self.time = started
        """Time of the newest row, in seconds since the epoch."""
        self._step = 0

    def add(self, events: Iterable[LogEvent]) -> tuple[list[Row], bool]:
        """Return the new rows, and whether a resumed process has taken back earlier ones.

        After that the new rows are all rows: the steps after its checkpoint are trained anew.
        """
        known, back = len(self.rows), False
        for event in events:
            if isinstance(event, StartEvent):
                back |= self._start(event)
            else:
                self.rows.extend(self._rows(event))
        return (self.rows if back else self.rows[known:]), back

    def _start(self, event: StartEvent) -> bool:
        """Take back the rows after a process's checkpoint; True if there were any."""
        kept = [row for row in self.rows if row.step <= event.resumed_at]
        back = len(kept) < len(self.rows)
        self.rows, self._step = kept, event.resumed_at
        if event.time is not None:
            self.time = max(event.time, kept[-1].time if kept else 0.0)
        return back

    def _rows(self, event: LogEvent) -> Iterator[Row]:
        if isinstance(event, StepEvent):
            self._step, self.time = event.step + 1, self.time + event.seconds
            values = _of_step(event)
        elif isinstance(event, EvaluationEvent):
            self._step = event.step
            values = {"validation/loss": event.loss, "validation/bits_per_byte": event.bits_per_byte}
        elif isinstance(event, BlockEvent):
            values = {"memory/process_peak_bytes": event.process_peak_bytes}
        else:
            return
        finite = {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
        if finite:
            yield Row(self._step, self.time, finite)


def _of_step(event: StepEvent) -> dict[str, float | None]:
    norm = event.log_gradient_norm
    return {
        "train/loss": event.loss,
        "train/learning_rate": event.learning_rate,
        "train/gradient_norm": None if norm is None or norm > math.log(1e300) else math.exp(norm),
        "train/step_ms": 1e3 * event.seconds,
        "train/tokens_per_second": event.tokens / event.seconds if event.seconds > 0 else None,
        "train/loss_scale": event.loss_scale,
    }


def _plain(values: Mapping[str, object]) -> dict[str, Value]:
    """Return the values that are known, with other kinds than numbers and texts as JSON."""
    return {text(name): _value(value) for name, value in values.items() if value is not None and value != {}}


def _value(value: object) -> Value:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return text(value if isinstance(value, str) else json.dumps(value, default=str))


def _epoch(created: str) -> float:
    """Seconds since the epoch of a record's time; 0 if it cannot be read."""
    try:
        found = datetime.fromisoformat(created)
    except ValueError:
        return 0.0
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
