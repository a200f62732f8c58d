"""One cell of a ladder: a stack of techniques at a batch, what the ledger says of it, and what a run of it measured.

A cell is `assay train` in a process of its own, as everywhere in this package, and its folder is thrown away once its
figures are read: the checkpoints of forty runs would fill a disk. It may take what is left of the ladder's time, so
that the whole ends when it was promised to; what that leaves out says so.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from assay import api
from assay.config import Home, Run
from assay.data import prepare
from assay.errors import UsageError
from assay.estimator import Estimate, estimate
from assay.hardware import Machine
from assay.launch.prepare import threads_of
from assay.launch.rates import measured_machine
from assay.optimizations import Unpredicted
from assay.records.run import RunResult
from assay.records.status import Status

SLACK = 0.9
"""Of the memory, what tensors may take where nothing was measured yet: an allocator reserves more than it gives."""

LARGEST = 4096
"""Sequences beyond which no larger batch is sought."""

NOT_RUN = "not run"

Stack = tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a cell. None where it was not measured, or is not predicted."""

    stack: Stack
    batch: int
    status: str
    reason: str | None = None
    tokens: int = 0
    documents: float | None = None
    """Those tokens over a document's mean length: batches are drawn, so no document is seen from end to end."""
    tokens_per_second: float | None = None
    step_seconds: float | None = None
    first_step_seconds: float | None = None
    mfu: float | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    predicted_bytes: int | None = None
    train_loss: float | None = None
    evidence: tuple[str, ...] = field(default=())

    @property
    def done(self) -> bool:
        """Whether it ran to its end, every technique proven."""
        return self.status == Status.DONE

    @property
    def held_bytes(self) -> int | None:
        """What the device has to have: reserved, or on a CPU, which reserves nothing, allocated."""
        return self.reserved_bytes or self.allocated_bytes

    def fits(self, memory_bytes: int) -> bool:
        """Whether it ran in so much memory."""
        return self.done and (self.held_bytes or 0) <= memory_bytes


class Laboratory:
    """Runs cells of one configuration on one device, until a time."""

    def __init__(self, base: Run, home: Home, until: float, granularity: int = 1) -> None:
        """`until` by the monotonic clock; batches are multiples of `granularity`."""
        self.machine: Machine = measured_machine(home, threads_of(base))
        prepared = prepare(base.data, home)
        self.base, self.home, self.granularity = base.with_vocabulary(prepared.vocab_size), home, granularity
        manifest = prepared.manifest
        tokens = sum(split.tokens for split in manifest.splits)
        # Of a corpus that is cut short the manifest counts files that were never read.
        self.tokens_per_document = tokens / manifest.source.files if base.data.max_bytes is None else None
        self.until = until

    def estimate(self, stack: Stack, batch: int) -> Estimate:
        """What the ledger says. Raises `UsageError` where it cannot be had, `Unpredicted` without arithmetic."""
        return estimate(api.configure(self.base, [f"training.batch_size={batch}"], stack), self.machine)

    def check(self, stack: Stack, batch: int) -> None:
        """Raise `UsageError` with the reason where a stack cannot be had here."""
        try:
            self.estimate(stack, batch)
        except Unpredicted:
            return

    def ledger(self, stack: Stack, batch: int) -> int:
        """Predicted peak of the stack, or of as much of it as somebody predicts."""
        for count in range(len(stack), 0, -1):
            for kept in combinations(stack, count):
                try:
                    return self.estimate(kept, batch).timeline.peak.nbytes
                except UsageError:
                    # Without one that is not predicted, another may lack its companion.
                    continue
        return self.estimate((), batch).timeline.peak.nbytes

    def largest(self, stack: Stack, memory_bytes: int, before: Outcome | None = None) -> int:
        """The largest batch that fits by the ledger.

        Its bytes are scaled by what the same stack held `before` at another batch over what the ledger said of that.
        """
        scale = 1 / SLACK
        if before is not None and before.held_bytes:
            scale = before.held_bytes / self.ledger(stack, before.batch)
        low, high = 0, LARGEST // self.granularity
        while low < high:
            middle = (low + high + 1) // 2
            fits = scale * self.ledger(stack, middle * self.granularity) <= memory_bytes
            low, high = (middle, high) if fits else (low, middle - 1)
        return low * self.granularity

    def measure(self, stack: Stack, batch: int) -> Outcome:
        """Run it in what time is left."""
        cell, left = Outcome(stack, batch, NOT_RUN), self.until - time.monotonic()
        if left <= 0:
            return replace(cell, reason="no time was left")
        try:
            result = api.train(
                self.base, f"training.batch_size={batch}", optimizations=stack, home=self.home, timeout=left
            )
        except UsageError as reason:
            return replace(cell, reason=str(reason))
        shutil.rmtree(self.home.runs / result.run, ignore_errors=True)
        return replace(cell, **self._figures(result))

    def _figures(self, result: RunResult) -> dict[str, Any]:
        seconds = result.step_seconds.median if result.step_seconds else None
        predicted = result.predicted
        return {
            "status": str(result.status),
            "reason": result.reason,
            "tokens": result.tokens,
            "documents": result.tokens / self.tokens_per_document if self.tokens_per_document else None,
            "tokens_per_second": result.tokens_per_second,
            "step_seconds": seconds,
            "first_step_seconds": result.first_step_seconds,
            "mfu": predicted.utilization(seconds).get("MFU") if predicted and seconds else None,
            "allocated_bytes": result.memory.tensors_peak_bytes,
            "reserved_bytes": result.memory.reserved_peak_bytes,
            "predicted_bytes": predicted.tensors_peak_bytes if predicted else None,
            "train_loss": result.train_loss,
            "evidence": tuple(one.observed for one in result.evidence),
        }


def without(stack: Sequence[str], name: str | None) -> Stack:
    """A stack less one technique, whatever its fields."""
    return tuple(one for one in stack if one.partition(":")[0] != name)
