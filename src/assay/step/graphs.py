"""The forward and backward of a micro-batch as a CUDA graph: recorded once, and replayed with one launch.

Torch's rules for the capture of a whole network are kept: work runs once on a stream of its own, so that libraries and
caches are ready (the run's first step, which trains as any); while it is recorded nothing executes; from then on every
tensor of it lies where it lay, so a batch is copied to where the first one was, and gradients are found where the first
ones were. Torch's `make_graphed_callables` is not used: autograd takes the very tensors that its graphs write gradients
into for a weight's gradient, and the second micro-batch of a step would overwrite what it should be added to.

Two graphs are recorded: of a step's first micro-batch, which writes the gradients, and of all others, which add to
them. Update, clipping and schedule stay outside, since they change from step to step. Noise comes from the device's own
generator, which torch tells of every replay.

What a graph computes, an instrument can only see while it is recorded. So under `observed` each micro-batch is recorded
anew before it is replayed, and what is timed afterwards are the graphs that were seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from assay.step.program import MicroBatch, Step

Gradients = Callable[["Step", Sequence["MicroBatch"], int], Tensor]
"""As `Program.gradients`."""
Pool = Any
"""Torch's name for memory that graphs share."""


@dataclass(frozen=True, eq=False)
class _Graph:
    """What was recorded of one micro-batch."""

    recording: Any
    loss: Tensor
    """Written by every replay."""
    handed: tuple[Callable[[], None], ...]
    """To be called after every replay."""


class StepGraphs:
    """The gradients of a program's steps, by replays of what `inner` does for one micro-batch."""

    def __init__(self, inner: Gradients) -> None:
        self.replays = 0
        """Since somebody began to observe."""
        self.capturing = False
        """Whether what runs now is being recorded."""
        self._inner = inner
        self._ready = self._as_written = self._anew = False
        self._graphs: list[_Graph] = []
        """Of a step's first micro-batch, and of all others."""
        self._pool: Pool = None
        self._inputs: MicroBatch | None = None
        self._tokens = 0
        self._gradients: list[Tensor | None] = []
        self._handed: list[Callable[[], None]] = []

    def gradients(self, step: Step, micro_batches: Sequence[MicroBatch], tokens: int) -> Tensor:
        """The seam of a step's forwards and backwards."""
        if self._as_written:
            return self._inner(step, micro_batches, tokens)
        if not self._ready:
            self._ready = True
            return beside(step.program.device, lambda: self._inner(step, micro_batches, tokens))
        losses = [
            self._replayed(step, micro_batch, tokens, first=index == 0)
            for index, micro_batch in enumerate(micro_batches)
        ]
        return sum(losses[1:], start=losses[0])

    def hand(self, tensor: Tensor, receive: Callable[[Tensor], None]) -> None:
        """Have a tensor received now, or, where it is being recorded, a copy of it after every replay."""
        if self.capturing:
            self._handed.append(lambda: receive(tensor.clone()))
        else:
            receive(tensor)

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Inside, each micro-batch is recorded before it is replayed, so that what it does can be seen."""
        self._anew, self.replays = True, 0
        try:
            yield
        finally:
            self._anew = False

    @contextmanager
    def as_written(self) -> Iterator[None]:
        """Inside, nothing is recorded nor replayed: hooks are called, and may wait for the device."""
        self._as_written = True
        try:
            yield
        finally:
            self._as_written = False

    def idle_bytes(self) -> int:
        """Of the graphs' memory, what no tensor has: it is kept for the next replay, and nobody else can have it."""
        segments = torch.cuda.memory_snapshot() if self._graphs else []  # type: ignore[no-untyped-call]
        own = [one for one in segments if tuple(one["segment_pool_id"]) == tuple(self._pool)]
        return sum(one["total_size"] - one["allocated_size"] for one in own)

    def _replayed(self, step: Step, micro_batch: MicroBatch, tokens: int, *, first: bool) -> Tensor:
        inputs = self._placed(micro_batch, tokens, first=first)
        kind = 0 if first else 1
        if self._anew:
            del self._graphs[kind:]
        if len(self._graphs) == kind:
            self._graphs.append(self._recorded(step, inputs, tokens, first=first))
        graph = self._graphs[kind]
        graph.recording.replay()
        self.replays += 1
        if first:
            for (_, parameter), gradient in zip(step.named_parameters(), self._gradients, strict=True):
                parameter.grad = gradient
        for receive in graph.handed:
            receive()
        return graph.loss.clone()

    def _placed(self, micro_batch: MicroBatch, tokens: int, *, first: bool) -> MicroBatch:
        """The micro-batch, where graphs read it. Whoever comes in another shape begins anew."""
        known = self._inputs is not None and self._tokens == tokens
        if not known or any(mine.shape != one.shape for mine, one in zip(self._inputs or (), micro_batch, strict=True)):
            if not first:
                raise ValueError("the micro-batches of a step that is replayed must be alike")
            self._graphs.clear()
            ids, targets = micro_batch
            self._inputs, self._tokens = (torch.empty_like(ids), torch.empty_like(targets)), tokens
        assert self._inputs is not None
        for place, given in zip(self._inputs, micro_batch, strict=True):
            place.copy_(given, non_blocking=True)
        return self._inputs

    def _recorded(self, step: Step, inputs: MicroBatch, tokens: int, *, first: bool) -> _Graph:
        if first:
            for _, parameter in step.named_parameters():
                parameter.grad = None
            self._gradients.clear()
            self._pool = new_pool()
        self.capturing, self._handed = True, []
        try:
            recording, loss = recorded(lambda: self._inner(step, [inputs], tokens), self._pool)
        finally:
            self.capturing = False
        if first:
            self._gradients.extend(parameter.grad for _, parameter in step.named_parameters())
        return _Graph(recording, loss, tuple(self._handed))


def launched(graphs: StepGraphs | None) -> AbstractContextManager[None]:
    """A context in which the host launches every kernel."""
    return nullcontext() if graphs is None else graphs.as_written()


def recorded(work: Callable[[], Tensor], pool: Pool) -> tuple[Any, Tensor]:
    """A graph of what `work` queues, and what it returned: nothing of it has run."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = work()
    return graph, result


def beside(device: torch.device, work: Callable[[], Tensor]) -> Tensor:
    """Do `work` on a stream of its own, after what was queued and before what will be."""
    here, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(here)
    with torch.cuda.stream(side):
        result = work()
    here.wait_stream(side)
    return result


def new_pool() -> Pool:
    """Memory for the graphs of one kind of step."""
    return torch.cuda.graph_pool_handle()
