"""Batches made by worker processes, ahead of their steps: torch's `DataLoader` as batch source.

The dataset's index is the step, and its item is the whole batch of that step. So a batch stays the same pure function
of the step. Steps are normally requested in order. An earlier step (one that is repeated, a run that diverged) is
computed directly, without the workers. A step later than the next one makes the workers restart from there.

Workers are forked, so they have the mapped shards and all else that makes batches, without a copy. The first step
starts them. They end with this process, even if it is killed: each checks every few seconds that its parent is alive.
Batches are returned as arrays through a pipe, because they are small and containers limit shared memory. The loader has
a generator of its own, because it draws a number when it begins, which must not be one of the run's.

A step is in reference cycles, whose objects are collected in no particular order. A loader collected after its own
queues would wait seconds for workers that receive no signal to end. So a list outside of any cycle holds the loader,
and is emptied when this batch source is collected.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any
from weakref import finalize

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from assay.records.trace import ANOTHER_PROCESS
from assay.step.prepared import PreparedSequences
from assay.step.program import BatchSource, MicroBatch, Program, Share

_Made = tuple[int, int, list[tuple[Any, Any]]]
"""(id of the process that made a batch, number of such processes, the batch's arrays)."""


class Workers:
    """Batch source of a program, with `workers` other processes that each make `ahead` batches ahead."""

    def __init__(self, program: Program, workers: int, ahead: int) -> None:
        self.prepared = PreparedSequences(ANOTHER_PROCESS)
        self._inner, self._workers, self._ahead = program.batches, workers, ahead
        self._share: Share | None = None
        self._loaders: list[DataLoader[_Made]] = []
        finalize(self, self._loaders.clear)
        self._steps = _FromOneOn()
        self._made: Iterator[_Made] = iter(())

    def __call__(self, step: int, share: Share) -> Sequence[MicroBatch]:
        """Return the rows of a step, from a worker unless the step or the share is out of order."""
        self._share = self._share or share
        if share != self._share or (self._loaders and step < self._steps.next):
            return self._inner(step, share)
        if not self._loaders or step > self._steps.next:
            self._begin(step, share)
        self._steps.next += 1
        process, processes, arrays = next(self._made)
        rows = [(torch.from_numpy(ids), torch.from_numpy(targets)) for ids, targets in arrays]
        if process != os.getpid():
            self.prepared.sequences += sum(len(ids) for ids, _ in rows)
            self.prepared.makers = processes
        return rows

    def _begin(self, step: int, share: Share) -> None:
        """Make the workers begin at a step; the processes stay the same."""
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
    """Sampler of consecutive steps without end, from the value of `next` when it is iterated."""

    def __init__(self) -> None:
        self.next = 0

    def __iter__(self) -> Iterator[int]:
        return count(self.next)


class _Steps(Dataset[_Made]):
    """Dataset of the batches of one share, by step."""

    def __init__(self, batches: BatchSource, share: Share) -> None:
        self._batches, self._share = batches, share

    def __getitem__(self, step: int) -> _Made:
        worker = get_worker_info()
        arrays = [(ids.numpy(), targets.numpy()) for ids, targets in self._batches(step, self._share)]
        return os.getpid(), 0 if worker is None else worker.num_workers, arrays


def _as_it_is(item: Any) -> Any:
    """Return the item: torch's default collation would turn arrays into tensors."""
    return item
