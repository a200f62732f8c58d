"""Batches made by other processes, ahead of the steps that want them: torch's `DataLoader` behind the batch seam.

The dataset's index is the step, and its item is the whole batch of that step, so what a step trains on stays the same
pure function of the step. Steps are asked for in order; whoever asks for another one (a step done again, a run that
diverged) is answered directly, without the workers, and a later step than the next makes them begin anew from there.

Workers are forked, which hands them the mapped shards and whatever else makes batches without a copy. They are
started by the first step and end with this process, also where it is killed: each looks every few seconds whether its
parent is still there. Batches come back as arrays through a pipe: they are small, and shared memory, which containers
keep short, is left alone. The loader gets a generator of its own, because it draws a number when it begins, and that
must not be one of the run's.

A step is in reference cycles, and what is collected in a cycle has no order: a loader that came after its own queues
would wait seconds for workers that nobody tells to end. So a list that is in no cycle holds it, and is emptied when
the step is gone.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any
from weakref import finalize

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from assay.step.program import BatchSource, MicroBatch, Program, Share
from assay.step.trace import ANOTHER_PROCESS

_Made = tuple[int, int, list[tuple[Any, Any]]]
"""The process that made a batch, how many such there are, and the batch's arrays."""


class Workers:
    """The batches of a program, made by `workers` other processes that are `ahead` batches ahead each."""

    def __init__(self, program: Program, workers: int, ahead: int) -> None:
        self._inner, self._prepared, self._makers = program.batches, program.prepared, program.makers
        self._workers, self._ahead = workers, ahead
        self._share: Share | None = None
        self._loaders: list[DataLoader[_Made]] = []
        finalize(self, self._loaders.clear)
        self._steps = _FromOneOn()
        self._made: Iterator[_Made] = iter(())

    def __call__(self, step: int, share: Share) -> Sequence[MicroBatch]:
        """The rows of a step, from a worker where it is the next one."""
        self._share = self._share or share
        if share != self._share or (self._loaders and step < self._steps.next):
            return self._inner(step, share)
        if not self._loaders or step > self._steps.next:
            self._begin(step, share)
        self._steps.next += 1
        process, processes, arrays = next(self._made)
        rows = [(torch.from_numpy(ids), torch.from_numpy(targets)) for ids, targets in arrays]
        if process != os.getpid():
            self._prepared[ANOTHER_PROCESS] += sum(len(ids) for ids, _ in rows)
            self._makers[ANOTHER_PROCESS] = processes
        return rows

    def _begin(self, step: int, share: Share) -> None:
        """Have the workers make batches from a step on; the processes stay the same ones."""
        self._steps.next = step
        if not self._loaders:
            loader = DataLoader(
                _Steps(self._inner, share),
                batch_size=None,
                sampler=self._steps,
                num_workers=self._workers,
                prefetch_factor=self._ahead,
                persistent_workers=True,
                collate_fn=_as_it_is,
                multiprocessing_context="fork",
                generator=torch.Generator(),
            )
            self._loaders.append(loader)
        self._made = iter(self._loaders[0])


class _FromOneOn(Sampler[int]):
    """Steps in order, from `next` at the time of asking on, without an end."""

    def __init__(self) -> None:
        self.next = 0

    def __iter__(self) -> Iterator[int]:
        return count(self.next)


class _Steps(Dataset[_Made]):
    """The batches of one share, by step."""

    def __init__(self, batches: BatchSource, share: Share) -> None:
        self._batches, self._share = batches, share

    def __getitem__(self, step: int) -> _Made:
        worker = get_worker_info()
        arrays = [(ids.numpy(), targets.numpy()) for ids, targets in self._batches(step, self._share)]
        return os.getpid(), 0 if worker is None else worker.num_workers, arrays


def _as_it_is(item: Any) -> Any:
    """In the place of a collation that would turn arrays into tensors."""
    return item
