"""FLOPs and communications of a step, with recomputation and all micro-batches counted."""

from collections.abc import Iterator

from assay.cost.collectives import Collective, Communication
from assay.cost.operation import Operation
from assay.cost.simulation.fsdp_groups import ShardedGroup
from assay.cost.step_cost import Cost


def executed_flops(cost: Cost) -> dict[str, int]:
    """FLOPs of one optimizer step by the dtype that computes them: the numerator of HFU.

    They include recomputation and the matrix products of the update.
    """
    again = recomputed_positions(cost)
    total: dict[str, int] = {}
    for index, operation in enumerate(cost.tape):
        work = operation.flops.forward * (2 if index in again else 1) + operation.flops.backward
        if work:
            dtype = multiplied_in(operation, cost)
            total[dtype] = total.get(dtype, 0) + work * cost.micro_batches
    for product in cost.optimizer.rule.products(cost.updated):
        total[product.dtype] = total.get(product.dtype, 0) + product.flops
    return total


def multiplied_in(operation: Operation, cost: Cost) -> str:
    """The dtype in which a contraction multiplies."""
    return operation.products or cost.values[operation.inputs[0]].dtype


def multiplying(cost: Cost) -> set[str]:
    """The dtypes of `executed_flops`."""
    works = {multiplied_in(one, cost) for one in cost.tape if one.flops.forward or one.flops.backward}
    return works | {product.dtype for product in cost.optimizer.rule.products(cost.updated)}


def model_flops(cost: Cost) -> int:
    """FLOPs that one optimizer step needs, without recomputation and padding: the numerator of MFU."""
    work = (operation.flops for operation in cost.tape)
    return cost.micro_batches * sum(one.forward + one.backward - one.padding for one in work)


def recomputed_positions(cost: Cost) -> frozenset[int]:
    """Positions on the tape of the operations that are recomputed."""
    if not cost.backward.recomputed:
        return frozenset()
    return frozenset(index for segment in cost.lifetimes.segments for index in segment.runs)


def communications(cost: Cost) -> tuple[Communication, ...]:
    """Every communication of this rank in one optimizer step; receiving is not counted."""
    return (*_of_operations(cost), *_of_groups(cost), *_of_ends(cost), *_of_gradients(cost), *cost.sent)


def _of_operations(cost: Cost) -> Iterator[Communication]:
    again, values = recomputed_positions(cost), cost.values
    for index, operation in enumerate(cost.tape):
        passes, (forward, backward, exchanges) = cost.micro_batches, operation.collectives
        if forward is not None:
            times = 2 if index in again else 1
            whole = values[operation.inputs[0]] if forward.collective == "reduce_scatter" else operation.outputs[0]
            yield Communication(*forward, whole.nbytes, times * passes, operation.site, whole.dtype)
        if backward is not None:
            whole = operation.outputs[0] if backward.collective == "reduce_scatter" else values[operation.inputs[0]]
            yield Communication(*backward, whole.nbytes, passes, operation.site, whole.dtype)
        for one in exchanges:
            whole = operation.own[one.of]
            times = one.times * passes * (2 if index in again and not one.back else 1)
            yield Communication(*one.sending, whole.nbytes, times, operation.site, whole.dtype)


def _of_groups(cost: Cost) -> Iterator[Communication]:
    for group in cost.sharding.groups:
        if group.ranks > 1:
            times = _gatherings(cost, group)
            dtype = cost.parameters[group.weights[0]].dtype
            yield Communication("all_gather", group.axis, group.whole_bytes, times, "weights", dtype)
        collective: Collective = "reduce_scatter" if group.ranks > 1 else "all_reduce"
        if group.trained:
            dtype = cost.pieces[group.trained[0]].dtype
            yield Communication(collective, group.axis, group.summed_bytes, 1, "gradients", dtype)


def _gatherings(cost: Cost, group: ShardedGroup) -> int:
    """Number of times a step gathers a group. In a pipeline its weights stay from a backward to the next forward."""
    if not cost.order:
        return cost.micro_batches * (2 if group.reshard else 1)
    chunk = next(index for index, sites in enumerate(cost.pipeline.stages) if set(group.sites) <= set(sites))
    times, there = 0, False
    for action in cost.order:
        if action.chunk == chunk and action.kind != "W":
            times += not there
            there = not group.reshard if action.kind == "F" else True
    return times


def _of_ends(cost: Cost) -> Iterator[Communication]:
    for name in cost.pipeline.exchanged:
        piece = cost.pieces[name]
        yield Communication("all_reduce", "pp", piece.nbytes, 1, "the tied embedding's gradient", piece.dtype)


def _of_gradients(cost: Cost) -> Iterator[Communication]:
    for axis in cost.summed_over:
        for piece in cost.pieces.values():
            yield Communication("all_reduce", axis, piece.nbytes, 1, "gradients", piece.dtype)
