"""Context parallelism on a tape: all but attention works on positions alone, so a rank does its part of each operation.

Weights are whole on every rank, and their gradients are summed after the last backward of a step. A rank's positions
are two pieces of a sequence (`parallel.context`). Learned positions and rotary tables are therefore indexed, not
sliced, and the results are copies. Token ids and targets are indexed, too, in addition to the whole batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from assay.cost.operation import Gradient, Operation
from assay.cost.rewrites.attention_cores import CORE, exchange_core
from assay.cost.step_cost import Cost
from assay.cost.tape import Tape
from assay.cost.tensor import Tensor
from assay.optimizations.context_parallel.ring_ledger import ring

Core = Callable[[str, Tensor, Tensor, Tensor, Cost], Tape]
"""Function of a site, this rank's queries, keys and values, and the ledger. It returns the core up to `SITE:merged`."""

_AXIS = "cp"
_LEARNED = "embedding.position.weight"


def ring_core(site: str, q: Tensor, k: Tensor, v: Tensor, cost: Cost) -> Tape:
    """Torch's ring attention."""
    return ring(site, q, k, v, place=cost.place[_AXIS], ranks=cost.mesh.degree(_AXIS), kernels=cost.kernels)


def divide_context(cost: Cost, core: Core = ring_core) -> Cost:
    """The ledger of one of the ranks that divide every sequence; `core` writes attention."""
    length, parts = cost.batch.tensors[0].shape[1], cost.mesh.degree(_AXIS)
    positions = Tensor("positions", (length // parts,), "int64", batched=False)
    picked = tuple(replace(one, shape=(one.shape[0], length // parts), batched=True) for one in cost.batch.tensors)

    def of_this_rank(site: str, q: Tensor, k: Tensor, v: Tensor) -> Tape:
        return core(site, _part(q, parts), _part(k, parts), _part(v, parts), cost)

    inner = exchange_core(cost, of_this_rank)
    tape = tuple(one for operation in inner.tape for one in _divided(operation, cost, positions))
    tables = (*replace(cost, tape=tape).with_tables_read().tables, positions)
    batch = replace(inner.batch, picked=picked)
    divided = replace(inner, tape=tape, tables=tables, batch=batch, buffers=(*cost.buffers, *picked))
    return replace(divided, summed_over=(*cost.summed_over, _AXIS)).reporting(_AXIS)


def _divided(operation: Operation, cost: Cost, positions: Tensor) -> Iterator[Operation]:
    """The operation on this rank's positions, after the look-ups of the weights and tables that it reads."""
    if CORE in operation.site:
        yield operation
        return
    parts = cost.mesh.degree(_AXIS)
    tables = {one.name: one for one in cost.tables if len(one.shape) == 2}
    reading: dict[str, str] = {}
    gradients = operation.gradients
    for index, name in enumerate(operation.inputs):
        if name == _LEARNED:
            yield _picked_weights(operation.site, cost.parameters[name], positions)
            reading[name] = f"{operation.site}:picked"
            gradients = (*gradients[:index], Gradient.FRESH, *gradients[index + 1 :])
        elif name in tables:
            yield _picked_table(operation, tables[name], positions)
            reading[name] = f"{operation.outputs[0].name}:picked"

    yield replace(
        operation.reading(reading).making(lambda one: _part(one, parts)),
        gradients=gradients,
        flops=operation.flops.divided(parts),
    )


def _picked_weights(site: str, learned: Tensor, positions: Tensor) -> Operation:
    shape = (*positions.shape, learned.shape[1])
    return Operation(
        name="aten.index",
        site=site,
        kind="movement",
        inputs=(learned.name, positions.name),
        outputs=(Tensor(f"{site}:picked", shape, learned.dtype, batched=False),),
        gradients=(Gradient.INPLACE, Gradient.NONE),
        saves=(positions.name,),
        backward="IndexBackward",
    )


def _picked_table(operation: Operation, table: Tensor, positions: Tensor) -> Operation:
    """Rows of a rotary table, which is made in the dtype of the tensor that it rotates."""
    turned, made = operation.inputs[0], operation.outputs[0]
    shape = (*positions.shape, table.shape[1])
    return Operation(
        name="aten.index",
        site=operation.site,
        kind="movement",
        inputs=(turned, table.name),
        outputs=(Tensor(f"{made.name}:picked", shape, table.dtype, batched=False),),
        gradients=(Gradient.NONE, Gradient.NONE),
    )


def _part(tensor: Tensor, parts: int) -> Tensor:
    """This rank's part of the positions: the axis after rows and heads, or the one that merges rows and positions."""
    if not tensor.batched or not tensor.shape:
        return tensor
    return tensor.piece(parts, 0, {4: 2, 3: 1}.get(len(tensor.shape), 0))
