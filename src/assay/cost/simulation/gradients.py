"""Gradients of one micro-batch, added up and accumulated by the rules of autograd's engine.

A second gradient of a value is added into the first if nothing else holds that. A parameter's gradient is accumulated
once all its uses have contributed.
"""

from assay.cost.operation import Operation
from assay.cost.simulation.allocator import GRADIENT, Storage
from assay.cost.simulation.step_state import PlayedStage, PlayedStep


class Gradients:
    """Gradients of values whose own node has not run yet, and of weights that are not complete."""

    def __init__(self, step: PlayedStep, stage: PlayedStage) -> None:
        self._step, self._stage = step, stage
        self._cost, self._ledger, self._learned = step.cost, step.ledger, step.cost.parameters
        self._together = step.cost.backward.accumulated_together
        self.by_name: dict[str, Storage] = {}
        self._missing = dict(step.plan.readers)
        """Contributions to each parameter's gradient that are still to come."""
        self._complete: list[str] = []
        """Weights whose gradients are complete, and wait until their module's backward has finished."""

    def of_results(self, operation: Operation) -> dict[str, Storage]:
        """The gradients of an operation's outputs, by name."""
        return {one.name: self.by_name[one.name] for one in operation.outputs if one.name in self.by_name}

    def take(self, operation: Operation) -> list[Storage]:
        """Remove the gradients of an operation's outputs, which its node reads."""
        waiting = self.by_name
        return [waiting.pop(one.name) for one in operation.outputs if one.name in waiting]

    def deliver(self, name: str, storage: Storage, operation: Operation) -> None:
        """Add a gradient to the value's earlier one; accumulate a parameter's gradient when it is complete."""
        learned, earlier = name in self._learned, self.by_name.get(name)
        if earlier is not None:
            # Measured: torch's engine for replicas and shards sums a tied weight's gradients in a third tensor.
            shared = bool(self._cost.sharding.groups) and learned
            storage = self._ledger.add(earlier, storage, operation.site, in_place=not shared)
        self.by_name[name] = storage
        if learned:
            self._missing[name] -= 1
            if self._missing[name] == 0:
                if self._together and operation.within(*self._together):
                    self._complete.append(name)
                else:
                    self._accumulate(name)

    def accumulate_complete(self) -> None:
        """Accumulate the complete gradients of a module whose backward has finished."""
        for name in self._complete:
            self._accumulate(name)
        self._complete.clear()

    def _accumulate(self, name: str) -> None:
        """Store a parameter's gradient, or add it to that of earlier micro-batches.

        With updates in backward, use it and free it.
        """
        storage = self.by_name.pop(name)
        if storage.category is not GRADIENT:
            self._ledger.overwrite(storage, GRADIENT, storage.site)
        if self._cost.optimizer.in_backward:
            storage = self._ledger.ordered(storage, name)
            piece = self._cost.pieces[name]
            self._step.update((self._cost.norm_of(piece), *self._cost.instants_of({name: piece})))
            self._ledger.drop(storage)
        elif name not in self._step.gradients:
            self._step.gradients[name] = self._ledger.ordered(storage, name)
        elif self._stage.gathered.widens(name):
            self._stage.gathered.waiting[name] = storage
        else:
            self._ledger.drop(storage)
