"""Forward and backward replayed as a captured graph, as the device's ledger sees them.

The graph reads a micro-batch from a fixed buffer, into which each one is copied from the batch. Its peak stays
allocated between steps, gradients included, so nothing of it is freed for the update (`cost.timeline`).
"""

from dataclasses import replace

from assay.cost.step import Cost
from assay.cost.tensors import Tensor


def replayed(cost: Cost) -> Cost:
    """The ledger of a step that a captured graph replays."""
    inputs = {one.name: _place(one, cost.micro_batches) for one in cost.batch.tensors}
    names = {name: one.name for name, one in inputs.items()}
    tape = tuple(operation.reading(names) for operation in cost.tape)
    return replace(cost, tape=tape, tables=(*cost.tables, *inputs.values()), replayed=True)


def _place(one: Tensor, micro_batches: int) -> Tensor:
    return replace(one, name=f"replayed {one.name}", shape=(one.shape[0] // micro_batches, *one.shape[1:]))
