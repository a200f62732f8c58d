"""The process that copies runs to one tracker: ``python -m assay.tracking.sender NAME FOLDER HOME``.

A tracker's library starts threads and processes, handles signals, prints, and may fail or hang. Here it can do so
without harm: the parent of a run only writes a line, and the measured process knows nothing of it. This process reads
the home as any other reader, and yields to all others of the machine.

Requests are lines of JSON on standard input: `follow` a run while it trains, `send` one that has ended, or `finish` the
one that is followed. Each answer is one line of JSON: `ready` at first, then `sent` or `failed`. After a failure the
process ends.

The axis is the number of completed steps: the loss of the first step is at 1, and an evaluation after 100 steps is at
100. A log has no clock for each step, so a row's time is the start of its process plus the seconds of its steps.
"""

import argparse
import json
import math
import os
import queue
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from assay.config.home import Home
from assay.errors import first_line
from assay.records.events import BlockEvent, EvaluationEvent, LogEvent, StartEvent, StepEvent
from assay.records.run import RunResult
from assay.report.kit.blocks import leaves, stack_summary
from assay.store.event_log import read_since
from assay.store.lookup import find
from assay.store.result import settle
from assay.store.run_folder import RunSpec
from assay.tracking import tracker
from assay.tracking.base import Ending, Row, Sheet, Tracker, Value, text

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
    step, predicted = result.speed.step_seconds, result.predicted
    found["step_seconds"] = None if step is None else step.model_dump()
    found["memory"] = result.memory.model_dump(exclude={"phases", "saved_bytes"})
    found["predicted"] = None if predicted is None else predicted.model_dump(exclude={"ranks"})
    proofs: dict[str, Any] = {one.optimization: one.verdict for one in result.proof.evidence}
    observed = {one.optimization: one.observed for one in result.proof.evidence}
    if result.proof.values is not None and result.proof.values.checked:
        proofs["values"] = result.proof.values.verdict
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


POLL_SECONDS = 1.0
"""Time between two looks at the log of a run that is followed."""
_YIELDING = 10
"""Priority of the process, as for `nice`."""


class Copy:
    """Copy of one run, which grows with the run's log."""

    def __init__(self, to: Tracker, home: Home, run: str, title: str = "", group: str = "") -> None:
        self._to = to
        self._folder = find(home, run)
        self._sheet = sheet(self._folder.spec(), title, group)
        self._series = Series(self._sheet.created)
        self._offset = 0
        to.begin(self._sheet)

    def grow(self) -> None:
        """Add what the log has since the last time. If a resumed process takes steps back, write the copy anew."""
        events, self._offset = read_since(self._folder.events_file, self._offset)
        rows, back = self._series.add(events)
        if back:
            self._to.begin(self._sheet)
        if rows:
            self._to.log(rows)

    def end(self) -> None:
        """Add the rest, and the summary of the run as it is now."""
        self.grow()
        self._to.end(ending(settle(self._folder, recorded=False), self._series.time))


def serve(to: Tracker, home: Home, requests: "queue.SimpleQueue[dict[str, Any] | None]") -> Iterator[dict[str, Any]]:
    """Do what is requested, and yield the answers, until None is requested: nobody needs the process any more."""
    copy: Copy | None = None
    to.load()
    yield {"ready": to.name}
    while True:
        try:
            asked = requests.get(timeout=None if copy is None else POLL_SECONDS)
        except queue.Empty:
            if copy is not None:
                copy.grow()
            continue
        if copy is not None and (asked is None or asked["do"] != "send"):
            copy.end()
            copy = None
        if asked is None:
            return
        facts = {name: asked.get(name, "") for name in ("run", "title", "group")}
        if asked["do"] == "follow":
            copy = Copy(to, home, **facts)
            continue
        if asked["do"] == "send":
            Copy(to, home, **facts).end()
        yield {"sent": facts["run"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer requests until standard input closes; returns the exit code."""
    parser = argparse.ArgumentParser(prog="assay.tracking.sender")
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("home", type=Path)
    options = parser.parse_args(arguments)
    answers = _apart()
    if hasattr(os, "nice"):
        os.nice(_YIELDING)
    requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    try:
        for answer in serve(tracker(options.name, options.folder), Home(options.home), requests):
            _say(answers, answer)
    except Exception as error:
        _say(answers, {"failed": f"{type(error).__name__}: {first_line(error)}"})
        return 1
    return 0


def _apart() -> IO[str]:
    """Return standard output for the answers alone; what a library prints goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _listen(requests: "queue.SimpleQueue[dict[str, Any] | None]") -> None:
    for line in sys.stdin:
        requests.put(json.loads(line))
    requests.put(None)


def _say(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
