"""FLOPs of a step: what the model needs, and what is executed once modules run again."""

from assay.cost.segments import plan
from assay.cost.step import Cost


def executed_flops(cost: Cost) -> dict[str, int]:
    """FLOPs of one optimizer step by the dtype that computes them, recomputation included: the numerator of HFU."""
    again = repeated(cost)
    values = cost.values
    total: dict[str, int] = {}
    for index, operation in enumerate(cost.tape):
        work = operation.flops * (2 if index in again else 1) + operation.backward_flops
        if work:
            dtype = values[operation.inputs[0]].dtype
            total[dtype] = total.get(dtype, 0) + work * cost.micro_batches
    return total


def model_flops(cost: Cost) -> int:
    """FLOPs that one optimizer step needs, whatever is recomputed or padded: the numerator of MFU."""
    return cost.micro_batches * sum(one.flops + one.backward_flops - one.padding_flops for one in cost.tape)


def repeated(cost: Cost) -> frozenset[int]:
    """Positions on the tape of the operations that run twice."""
    return frozenset(index for segment in plan(cost).segments for index in range(segment.first, segment.stop + 1))
