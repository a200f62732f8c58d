"""Copy the next step's batch to the device while this step computes there.

A copy from pageable memory makes the host wait until the stream reaches it. From pinned memory the device copies by
itself, on a side stream that overlaps computation. The next batch is read once the step's backward is queued, so the
host reads while the device is busy. The step that uses the batch makes its stream wait for the copy, never the host.
Batches are a pure function of the step, so a batch that is not requested next is dropped.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import torch

from assay.errors import UsageError
from assay.records.trace import SIDE_STREAM
from assay.step.prepared import PreparedSequences
from assay.step.program import MicroBatch, Program, Share, Step

Rows = Sequence[MicroBatch]
Copy = Callable[[Rows], Callable[[], Rows]]
"""Begins to copy rows, and returns a function that gives the copies once they may be used."""


class Prefetch:
    """Batch source of a program; `copy` copies the next batch ahead."""

    def __init__(self, program: Program, copy: Copy) -> None:
        self.prepared = PreparedSequences(SIDE_STREAM)
        self._inner, self._copy = program.batches, copy
        self._asked: tuple[int, Share] | None = None
        self._ahead: tuple[tuple[int, Share], Callable[[], Rows]] | None = None

    def __call__(self, step: int, share: Share) -> Rows:
        """Return the rows of a step: on the device if they were copied ahead, else as they are read."""
        self._asked, ahead, self._ahead = (step, share), self._ahead, None
        if ahead is None or ahead[0] != self._asked:
            return self._inner(step, share)
        rows = ahead[1]()
        self.prepared.sequences += sum(len(ids) for ids, _ in rows)
        return rows

    def fetch_next(self, step: Step) -> None:
        """Begin to copy the batch after the last requested one. Raises `RuntimeError` before the first request."""
        if self._asked is None:
            raise RuntimeError("no batch was requested yet, so there is no next one")
        index, share = self._asked
        with suppress(UsageError, OSError):  # a batch that cannot be read raises in the step that requests it
            self._ahead = (index + 1, share), self._copy(self._inner(index + 1, share))


def prefetch_batches(program: Program) -> Program:
    """Return the program whose batches are copied from pinned memory, one step ahead."""
    batches = Prefetch(program, from_pinned_memory(program.device))
    return replace(
        program,
        batches=batches,
        finish_gradients=(*program.finish_gradients, batches.fetch_next),
        witnesses=(*program.witnesses, batches.prepared),
    )


def from_pinned_memory(device: torch.device) -> Copy:
    """Make a function that copies rows to a CUDA device while it computes."""
    streams: list[torch.cuda.Stream] = []

    def copy(rows: Rows) -> Callable[[], Rows]:
        side = streams[0] if streams else torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        streams[:] = [side]
        with torch.cuda.stream(side):
            copied = [tuple(one.pin_memory().to(device, non_blocking=True) for one in pair) for pair in rows]
            there = side.record_event()

        def ready() -> Rows:
            computing = torch.cuda.current_stream(device)
            computing.wait_event(there)
            for ids, targets in copied:
                ids.record_stream(computing)
                targets.record_stream(computing)
            return [(ids, targets) for ids, targets in copied]

        return ready

    return copy
