"""Saved tensors in the host's memory, as the device's ledger sees them: none stay, and each node has its own again.

Every saving is a copy of its own, so a tensor that two operations keep comes back twice, at different times. Copies on
their way down are taken to have arrived at once: where the link is slower than the forward, what waits for it is more.
"""

from dataclasses import replace

from assay.cost.step import Cost
from assay.cost.tape import Operation


def saved_on_host(cost: Cost) -> Cost:
    """The ledger when only weights stay where backward needs them."""
    values = cost.values

    def is_weight(name: str) -> bool:
        base = values[name]
        while base.view_of is not None:
            base = values[base.view_of]
        return base.name in cost.parameters

    def moved(operation: Operation) -> Operation:
        back = tuple(replace(values[name], view_of=None) for name in operation.saves if not is_weight(name))
        return replace(
            operation,
            saves=tuple(name for name in operation.saves if is_weight(name)),
            backward_scratch=(*operation.backward_scratch, *back),
        )

    return replace(cost, tape=tuple(map(moved, cost.tape)))
