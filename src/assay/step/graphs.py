"""The forward and backward of a micro-batch as a CUDA graph: captured once, and replayed with one launch.

Torch's rules for capturing a whole network are kept. The work runs once on a side stream, so that libraries and caches
are ready. This is the run's first step, which trains like any other. Nothing executes during capture. From then on
every tensor of the graph keeps its address. So a batch is copied into the captured inputs, and gradients are found in
the captured gradients. Torch's `make_graphed_callables` is not used, because autograd takes the tensors that its graphs
write as a weight's gradient. The second micro-batch of a step would overwrite that gradient instead of adding to it.

Two graphs are captured: one of a step's first micro-batch, which writes the gradients, and one of all others, which add
to them. Update, clipping and schedule stay outside, since they change from step to step. Random numbers come from the
device's own generator, which torch advances at every replay.

An instrument can see a graph's operators only during capture. So under `observed` each micro-batch is captured anew
before it is replayed, and the graphs that are timed afterwards are the ones that were seen.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.step.program import MicroBatch, Program, Step

Gradients = Callable[[Step, Sequence[MicroBatch], int], Tensor]
"""Type of `Program.gradients`."""
Pool = Any
"""Torch's handle of memory that graphs share."""


@dataclass(frozen=True, eq=False)
class _Graph:
    """Captured graph of one micro-batch."""

    recording: Any
    loss: Tensor
    """Summed loss, written by every replay."""
    handed: tuple[Callable[[], None], ...]
    """Functions to call after every replay."""


class StepGraphs:
    """Computes a step's gradients by replaying graphs of `inner`, captured for one micro-batch."""

    def __init__(self, inner: Gradients) -> None:
        self.replays = 0
        """Number of replays since `observed` was last entered."""
        self.capturing = False
        """True during capture."""
        self._inner = inner
        self._ready = self._as_written = self._anew = False
        self._graphs: list[_Graph] = []
        """Graphs of a step's first micro-batch, and of all others."""
        self._pool: Pool = None
        self._inputs: MicroBatch | None = None
        self._tokens = 0
        self._gradients: list[Tensor | None] = []
        self._handed: list[Callable[[], None]] = []

    def gradients(self, step: Step, micro_batches: Sequence[MicroBatch], tokens: int) -> Tensor:
        """Compute the gradients of a step and return its summed loss, as `Program.gradients`."""
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
        """Pass a tensor to `receive` now or, during capture, a copy of it after every replay."""
        if self.capturing:
            self._handed.append(lambda: receive(tensor.clone()))
        else:
            receive(tensor)

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Context in which each micro-batch is captured anew before its replay, so that its operators can be seen."""
        self._anew, self.replays = True, 0
        try:
            yield
        finally:
            self._anew = False

    @contextmanager
    def as_written(self) -> Iterator[None]:
        """Context without capture and replay: hooks are called, and may wait for the device."""
        self._as_written = True
        try:
            yield
        finally:
            self._as_written = False

    def idle_bytes(self) -> int:
        """Bytes of the graphs' memory that no tensor has; they are kept for replays and not available to others."""
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
        """Copy a micro-batch to the graphs' inputs and return these. Another shape or token count discards the graphs.

        Raises `ValueError` if it differs within a step.
        """
        known = self._inputs is not None and self._tokens == tokens
        if not known or any(mine.shape != one.shape for mine, one in zip(self._inputs or (), micro_batch, strict=True)):
            if not first:
                raise ValueError("all micro-batches of a replayed step must have the same shape")
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
            recording, loss = capture_graph(lambda: self._inner(step, [inputs], tokens), self._pool)
        finally:
            self.capturing = False
        if first:
            self._gradients.extend(parameter.grad for _, parameter in step.named_parameters())
        return _Graph(recording, loss, tuple(self._handed))


def without_replays(program: Program) -> AbstractContextManager[None]:
    """Context in which the host launches every kernel, without replays."""
    graphs = program.witness(StepGraphs)
    return nullcontext() if graphs is None else graphs.as_written()


def capture_graph(work: Callable[[], Tensor], pool: Pool) -> tuple[Any, Tensor]:
    """Capture the kernels that `work` queues, without running them. Return the graph and the result of `work`.

    Python collects no garbage meanwhile: a graph or a pinned block that it would free breaks a capture off.
    """
    graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool):
            result = work()
    finally:
        if collects:
            gc.enable()
    return graph, result


def beside(device: torch.device, work: Callable[[], Tensor]) -> Tensor:
    """Run `work` on a side stream, after all work queued so far and before any queued later."""
    here, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(here)
    with torch.cuda.stream(side):
        result = work()
    here.wait_stream(side)
    return result


def new_pool() -> Pool:
    """Create memory for the graphs of one kind of step.

    cuBLAS keeps a workspace for each stream, and all captures share one stream. A workspace of an earlier capture lies
    in the pool of its graphs, and that pool ends with them. New graphs must not write there. So workspaces are let go,
    and the new graphs make theirs in their own pool.
    """
    torch._C._cuda_clearCublasWorkspaces()
    return torch.cuda.graph_pool_handle()
