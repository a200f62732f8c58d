"""How often the host waited for the device in a step, by phase: each time it can queue nothing more until that is done.

A dispatch mode sees the operators that make it wait. Two things are not told by operators. `tolist` passes none on a
CPU, so the seam that reads a step's figures says itself that it waits. And a CPU lies on the host with everything it
has, so there a reading counts whatever is read, as it would on an accelerator; but for the numbers of updates, which
torch's optimizers keep on the host beside any device.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from assay.measure.storages import identity
from assay.step.program import Step


class Synchronizations:
    """Counts them for one step."""

    def __init__(self, step: Step) -> None:
        self.counts: Counter[str] = Counter()
        self._step = step
        self._counted = False

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """The host waits inside: once, whatever operators that takes."""
        self.counts[what] += 1
        self._counted = True
        try:
            yield
        finally:
            self._counted = False

    def note(self, phase: str, tensors: Iterable[torch.Tensor]) -> None:
        """An operator that waits, with its arguments and results."""
        if not self._counted and not self._on_the_host(list(tensors)):
            self.counts[phase] += 1

    def _on_the_host(self, tensors: list[torch.Tensor]) -> bool:
        """Whether they would be there beside an accelerator, too."""
        if any(one.device.type != "cpu" for one in tensors):
            return False
        if self._step.program.device.type != "cpu":
            return True
        kept = (entry.get("step") for entry in self._step.optimizer.state.values() if isinstance(entry, dict))
        updates = {identity(one.untyped_storage()) for one in kept if isinstance(one, torch.Tensor)}
        return all(identity(one.untyped_storage()) in updates for one in tensors)
