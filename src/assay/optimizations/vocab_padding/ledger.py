"""A padded vocabulary on a tape: more rows of the embedding, more columns of logits, and a bias that masks them."""

from dataclasses import replace
from math import prod

from assay.cost.operation import Flops, Gradient, Operation
from assay.cost.step import Cost
from assay.cost.tensors import Tensor

_PADDED = ("embedding.token.weight", "head.projection.weight")


def pad_vocabulary(cost: Cost, tokens: int, rows: int) -> Cost:
    """The ledger with `rows` rows of the vocabulary in place of its `tokens`."""
    barred = Tensor("barred", (rows,), batched=False)

    def widened(named: dict[str, Tensor]) -> dict[str, Tensor]:
        return {n: replace(t, shape=(rows, *t.shape[1:])) if n in _PADDED else t for n, t in named.items()}

    def wide(tensor: Tensor) -> Tensor:
        return replace(tensor, shape=(*tensor.shape[:-1], rows)) if tensor.shape[-1:] == (tokens,) else tensor

    def rewritten(operation: Operation) -> Operation:
        if operation.site == "head":
            return replace(operation, outputs=tuple(map(wide, operation.outputs)))
        if operation.site != "head.projection":
            return operation
        x, weight = (cost.values[name] for name in operation.inputs)
        product = 2 * prod(x.shape[:-1]) * rows * weight.shape[-1]
        return replace(
            operation,
            name="aten.addmm",
            inputs=(*operation.inputs, barred.name),
            gradients=(*operation.gradients, Gradient.NONE),
            outputs=tuple(map(wide, operation.outputs)),
            flops=Flops(product, 2 * product, 3 * product * (rows - tokens) // rows),
            backward="AddmmBackward",
        )

    tape = tuple(map(rewritten, cost.tape))
    changed = replace(cost, tape=tape, parameters=widened(cost.parameters), tables=(*cost.tables, barred))
    return changed.holding(widened(cost.pieces))
