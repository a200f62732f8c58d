"""Synchronizations of a step by phase: how often the host waits for the device before it can queue more work.

A dispatch mode sees the operators that make the host wait, with two exceptions. `tolist` calls no operator on a CPU, so
the seam that reads a step's figures reports its wait itself. And on a CPU every tensor is in host memory. There each
read counts, as it would on an accelerator, except reads of update counts, which torch's optimizers keep on the host.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from assay.instruments.memory.storages import identity
from assay.step.program import Step


class Synchronizations:
    """Counts the synchronizations of one step."""

    def __init__(self, step: Step) -> None:
        self.counts: Counter[str] = Counter()
        self._step = step
        self._counted = False
        self._counts: set[int] = set()
        self._states = 0

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Context in which the host waits; it counts once under `what`, whatever operators run inside."""
        self.counts[what] += 1
        self._counted = True
        try:
            yield
        finally:
            self._counted = False

    def note(self, phase: str, tensors: Iterable[torch.Tensor]) -> None:
        """Count an operator that waits; `tensors` are its arguments and results."""
        if not self._counted and not self._on_the_host(list(tensors)):
            self.counts[phase] += 1

    def _on_the_host(self, tensors: list[torch.Tensor]) -> bool:
        """True if the tensors would be in host memory with an accelerator, too."""
        if any(one.device.type != "cpu" for one in tensors):
            return False
        if self._step.program.device.type != "cpu":
            return True
        return all(identity(one.untyped_storage()) in self._update_counts() for one in tensors)

    def _update_counts(self) -> set[int]:
        """Storages of the optimizer's counts of updates; they are looked up again when a parameter gets a state."""
        state = self._step.optimizer.state
        if len(state) != self._states:
            kept = (entry.get("step") for entry in state.values() if isinstance(entry, dict))
            self._counts = {identity(one.untyped_storage()) for one in kept if isinstance(one, torch.Tensor)}
            self._states = len(state)
        return self._counts
