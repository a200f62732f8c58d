"""Saved tensors in the host's memory, as the device's ledger sees them: each node copies its own back as temporaries.

Each saved tensor is a copy of its own, so a tensor that two operations save is copied back twice, at different times.
Copies to the host are assumed to arrive at once. If the link is slower than the forward, more bytes wait on the device.
In the worst case all of them wait until the step ends (`Cost.copied_beside`).
"""

from dataclasses import replace

from assay.cost.operation import Operation
from assay.cost.step import Cost


def saved_on_host(cost: Cost) -> Cost:
    """The ledger whose operations save only weights on the device."""
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
            scratch=operation.scratch.and_also(backward=back),
        )

    bases = {cost.lifetimes.base[name] for one in cost.tape for name in one.saves}
    kept = cost.parameters.keys() | {one.name for one in (*cost.tables, *cost.batch.tensors)}
    return replace(cost, tape=tuple(map(moved, cost.tape)), copied_beside=frozenset(bases - kept))
