"""Forward and backward replayed as a graph, as the device's ledger sees them.

They read a micro-batch where the first one lay, beside the batch that is copied there. What they hold at their highest
stays held between steps, gradients among it: the update finds nothing of it freed (`cost.timeline`).
"""

from dataclasses import replace

from assay.cost.step import Cost
from assay.cost.tensors import Tensor


def replayed(cost: Cost) -> Cost:
    """The ledger of the same step when a graph's memory stays with it."""
    inputs = {one.name: _place(one, cost.micro_batches) for one in cost.batch}
    names = {name: one.name for name, one in inputs.items()}
    tape = tuple(operation.reading(names) for operation in cost.tape)
    return replace(cost, tape=tape, tables=(*cost.tables, *inputs.values()), replayed=True)


def _place(one: Tensor, micro_batches: int) -> Tensor:
    return replace(one, name=f"replayed {one.name}", shape=(one.shape[0] // micro_batches, *one.shape[1:]))
