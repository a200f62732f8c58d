"""Predicted step time: a roofline over the operations of the ledger, with the rates measured on this machine.

An operation takes the longer of its arithmetic and its memory traffic (Williams, Waterman and Patterson 2009).
Arithmetic is FLOPs over the matmul rate of its dtype; traffic is bytes of arguments and results over the copy
bandwidth. On a CPU the time to launch it is added, because host and device are one. An accelerator's host works ahead,
so the longer of all launches and all work counts for the whole step. Caches are left out, and so are products that are
too small or too oddly shaped for the measured rate. The prediction therefore ranks treatments better than it times
them, and every report prints it next to the measured time.
"""

from dataclasses import dataclass

from assay.cost import Cost, Operation, executed_flops, repeated
from assay.cost.pipeline.bubble import StageTime
from assay.hardware import Rates

REPLAY_LAUNCHES = 4
"""Launches of a micro-batch: copies of ids and targets, the graph, a copy of the loss."""


@dataclass(frozen=True)
class Work:
    """Seconds of arithmetic and traffic, and seconds of launches."""

    working: float
    launching: float

    def plus(self, other: "Work", times: float = 1.0) -> "Work":
        """Return the sum with a multiple of another."""
        return Work(self.working + times * other.working, self.launching + times * other.launching)

    def seconds(self, rates: Rates) -> float:
        """Seconds of both: one after the other on a CPU, at once where a host works ahead of its accelerator."""
        return _together(self.working, self.launching, rates)


def step_seconds(cost: Cost, rates: Rates) -> float | None:
    """Seconds of one optimizer step; None if the rate of a dtype was not measured."""
    passes = pass_work(cost, rates)
    return None if passes is None else passes.plus(update_work(cost, rates)).seconds(rates)


def pass_work(cost: Cost, rates: Rates) -> Work | None:
    """Work of all forwards and backwards of a step; None if the rate of a dtype was not measured."""
    if not set(executed_flops(cost)) <= set(rates.matmul_flops):
        return None
    again = repeated(cost)
    working = launching = 0.0
    for index, operation in enumerate(cost.tape):
        if _only_views(operation):
            continue
        forwards = 2 if index in again else 1
        forward, backward = _operation_seconds(operation, cost, rates)
        working += forward * forwards + backward
        launching += forwards * rates.launch_seconds + rates.backward_launch_seconds
    if cost.replayed:
        launching = REPLAY_LAUNCHES * rates.launch_seconds
    return Work(cost.micro_batches * working, cost.micro_batches * launching)


def stage_time(cost: Cost, rates: Rates, sites: tuple[str, ...]) -> StageTime:
    """Seconds of one micro-batch in the modules of a stage.

    A product with a weight spends half of its backward on the weight's gradient.
    """
    again = repeated(cost)
    forward = backward = weight = 0.0
    launches = 0
    for index, operation in enumerate(cost.tape):
        if _only_views(operation) or not operation.within(*sites):
            continue
        once, back = _operation_seconds(operation, cost, rates)
        half = back / 2 if operation.flops.forward and not cost.parameters.keys().isdisjoint(operation.inputs) else 0.0
        forward, weight = forward + once, weight + half
        backward += back - half + (once if index in again else 0.0)
        launches += 1
    return StageTime(
        _together(forward, launches * rates.launch_seconds, rates),
        _together(backward, launches * rates.backward_launch_seconds, rates),
        weight,
    )


def update_seconds(cost: Cost, rates: Rates) -> float:
    """Seconds of the gradient norm and the update."""
    return update_work(cost, rates).seconds(rates)


def update_work(cost: Cost, rates: Rates) -> Work:
    """Work of the gradient norm and of the update: what the optimizer reads, writes and multiplies."""
    rule = cost.optimizer.rule
    products, traffic = rule.products(cost.updated), rule.traffic(cost.updated)
    multiplying = sum(
        max(one.flops / rates.matmul_flops[one.dtype], one.nbytes / rates.bandwidth_bytes) for one in products
    )
    launches = len(cost.pieces) + traffic.launches + sum(one.times for one in products)
    moved = cost.parameter_bytes + traffic.nbytes
    return Work(moved / rates.bandwidth_bytes + multiplying, launches * rates.launch_seconds)


def _together(working: float, launching: float, rates: Rates) -> float:
    return working + launching if rates.device == "cpu" else max(working, launching)


def _operation_seconds(operation: Operation, cost: Cost, rates: Rates) -> tuple[float, float]:
    """Seconds of forward and of backward, without their launches."""
    sizes, inputs, flops = cost.sizes, operation.inputs, operation.flops
    written = sum([sizes[tensor.name] for tensor in operation.outputs if tensor.view_of is None])
    moved = sum([sizes[name] for name in inputs]) + written
    # Backward reads the tensors that forward read and wrote, and writes a gradient for each.
    forward, backward = moved / rates.bandwidth_bytes, 2 * moved / rates.bandwidth_bytes
    if flops.forward or flops.backward:
        # A compiled graph has operations that read nothing, such as the mask of a padded vocabulary; these multiply
        # nothing.
        rate = rates.matmul_flops[operation.products or cost.values[inputs[0]].dtype]
        forward, backward = max(flops.forward / rate, forward), max(flops.backward / rate, backward)
    return forward, backward


def _only_views(operation: Operation) -> bool:
    """True if an operation writes nothing."""
    return all(tensor.view_of is not None for tensor in operation.outputs)
