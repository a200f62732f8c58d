"""Results of one micro-batch are held by later operations, nodes of backward, and modules that are recomputed."""

from collections.abc import Iterable

from assay.cost.operation import Operation
from assay.cost.simulation.allocator import Storage
from assay.cost.simulation.step_state import PlayedStage, PlayedStep


class Holders:
    """Storages of one micro-batch in a stage, and what is saved of them."""

    def __init__(self, step: PlayedStep, stage: PlayedStage) -> None:
        self.cost, self.plan, self.ledger = step.cost, step.plan, step.ledger
        self.lasting, self.learned = stage.lasting, step.cost.parameters
        self.storages: dict[str, Storage] = {}
        """Storages of the values alive in forward, by name."""
        self.kept: dict[int, list[str]] = {}
        """Names of the storages saved for an operation's backward, by its position on the tape."""
        self.cached: dict[int, list[str]] = {}
        """Names of the results that wait for recomputation, by position."""

    def saved(self) -> set[str]:
        """Names of the storages saved for backward now: without parameters, with the batch and tables."""
        return {name for names in (*self.kept.values(), *self.cached.values()) for name in names}

    def _keep(self, index: int, names: tuple[str, ...]) -> None:
        """Save the storages of `names` until the node at `index` has run; parameters exist anyway."""
        if not names:
            return
        kept, bases, lasting = self.kept.setdefault(index, []), self.plan.base, self.lasting
        for name in names:
            base = bases[name]
            if base not in lasting:
                kept.append(base)
                self.ledger.save(self.storages[base])
            elif base not in self.learned:
                kept.append(base)

    def _cache(self, index: int, operation: Operation) -> None:
        """Keep the results until their module is recomputed."""
        made = [tensor.name for tensor in (*operation.outputs, *operation.extras) if tensor.view_of is None]
        self.cached[index] = made
        for name in made:
            self.ledger.save(self.storages[name])

    def _leave_contexts(self, indices: range) -> None:
        """Release the tensors that forward's contexts held, unless backward needs them."""
        self._release([tensor.name for index in indices for tensor in self.cost.tape[index].outputs if tensor.held])

    def _free_saved(self, index: int) -> None:
        self._release(self.kept.pop(index, ()))

    def _release(self, bases: Iterable[str]) -> None:
        """Remove a holder of each storage, unless it outlasts the micro-batch or is freed already."""
        storages, lasting, drop = self.storages, self.lasting, self.ledger.drop
        for base in bases:
            storage = storages.get(base)
            if storage is not None and base not in lasting:
                drop(storage)
                if storage.holders == 0:
                    del storages[base]
