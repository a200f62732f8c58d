"""How long a step should take: a roofline over the operations of the ledger, with the rates measured on this machine.

An operation takes the longer of its arithmetic (FLOPs over the matmul rate of its dtype) and its traffic (bytes of
arguments and results over the copy bandwidth); Williams, Waterman and Patterson 2009. To that comes the time to launch
it on a CPU, where host and device are one; an accelerator's host works ahead, so there the longer of the two counts for
the whole step. What it leaves out is real: caches, and products too small or too oddly shaped to reach the measured
rate. So it ranks treatments better than it times them, and every report prints it beside what was measured.
"""

from collections.abc import Iterable

from assay.cost import Cost, Operation, Tensor, executed_flops, repeated
from assay.cost.pipeline import StageTime
from assay.hardware import Rates

REPLAY_LAUNCHES = 4
"""For a micro-batch: copies of ids and targets, the graph, a copy of the loss."""


def step_seconds(cost: Cost, rates: Rates) -> float | None:
    """Seconds of one optimizer step, or None where the rate of a dtype was not measured."""
    if not set(executed_flops(cost)) <= set(rates.matmul_flops):
        return None
    values, again = cost.values, repeated(cost)
    working = launching = 0.0
    for index, operation in enumerate(cost.tape):
        if all(tensor.view_of is not None for tensor in operation.outputs):
            continue
        forwards = 2 if index in again else 1
        forward, backward = _operation_seconds(operation, values, rates)
        working += forward * forwards + backward
        launching += forwards * rates.launch_seconds + rates.backward_launch_seconds
    if cost.replayed:
        launching = REPLAY_LAUNCHES * rates.launch_seconds
    updating, its_launches = _update(cost, rates)
    working, launching = cost.micro_batches * working + updating, cost.micro_batches * launching + its_launches
    return _together(working, launching, rates)


def stage_time(cost: Cost, rates: Rates, sites: tuple[str, ...]) -> StageTime:
    """Of one micro-batch in the modules of a stage. A product with a weight gives half its backward to the weight's."""
    values, again = cost.values, repeated(cost)
    forward = backward = weight = 0.0
    launches = 0
    for index, operation in enumerate(cost.tape):
        viewed = all(tensor.view_of is not None for tensor in operation.outputs)
        if viewed or not operation.within(*sites):
            continue
        once, back = _operation_seconds(operation, values, rates)
        half = back / 2 if operation.flops and not cost.parameters.keys().isdisjoint(operation.inputs) else 0.0
        forward, weight = forward + once, weight + half
        backward += back - half + (once if index in again else 0.0)
        launches += 1
    return StageTime(
        _together(forward, launches * rates.launch_seconds, rates),
        _together(backward, launches * rates.backward_launch_seconds, rates),
        weight,
    )


def update_seconds(cost: Cost, rates: Rates) -> float:
    """Of the norm and the update."""
    working, launching = _update(cost, rates)
    return _together(working, launching, rates)


def _update(cost: Cost, rates: Rates) -> tuple[float, float]:
    """Of the norm of the gradients, and of what the optimizer's rule reads, writes and multiplies."""
    products, traffic = cost.rule.products(cost.updated), cost.rule.traffic(cost.updated)
    multiplying = sum(
        max(one.flops / rates.matmul_flops[one.dtype], one.nbytes / rates.bandwidth_bytes) for one in products
    )
    launches = len(cost.pieces) + traffic.launches + sum(one.times for one in products)
    moved = cost.parameter_bytes + traffic.nbytes
    return moved / rates.bandwidth_bytes + multiplying, launches * rates.launch_seconds


def _together(working: float, launching: float, rates: Rates) -> float:
    return working + launching if rates.device == "cpu" else max(working, launching)


def _operation_seconds(operation: Operation, values: dict[str, Tensor], rates: Rates) -> tuple[float, float]:
    """Forward and backward, without their launches."""
    read = [values[name] for name in operation.inputs]
    moved = _nbytes(read) + _nbytes(tensor for tensor in operation.outputs if tensor.view_of is None)
    rate = rates.matmul_flops.get(operation.products or read[0].dtype, 0.0)

    def seconds(flops: int, nbytes: int) -> float:
        return max(flops / rate if flops else 0.0, nbytes / rates.bandwidth_bytes)

    # Backward reads what forward read and wrote, and writes a gradient for each.
    return seconds(operation.flops, moved), seconds(operation.backward_flops, 2 * moved)


def _nbytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
