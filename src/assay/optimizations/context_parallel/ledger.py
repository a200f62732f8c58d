"""Context parallelism on a tape: all but attention works on positions alone, so a rank does its part of each operation.

Weights are whole on every rank, and their gradients are summed after the last backward of a step. A rank's positions
are two pieces of a sequence (`parallel.context`). Learned positions and rotary tables are therefore indexed, not
sliced, and the results are copies. Token ids and targets are indexed, too, in addition to the whole batch.

Attention is a ring, as torch runs it (`_templated_ring_attention`; arXiv:2310.01889). A rank has its positions of
queries, keys and values. In forward all keys and values are gathered once, as one message, and used one rank's part at
a time. The rank's own part is under the causal mask. Of an earlier rank's part only the first half is used, and for a
later rank's part only the second half of the queries. Results are merged in float32 by their log-sum-exp. On all ranks
but the last, the last result covers half of the queries. The heads are then not merged in memory, and are copied.
Backward gathers once more. It passes the gradients of keys and values from rank to rank, in float32 and as often as
there are ranks.

The peak of one rank, in units of B·H·T/n·d numbers, is as follows. Forward holds the gathered 2n and four more: the
merge's sum so far, piece, difference and product. Where products are narrower, these four are float32 on all ranks but
the first. Backward holds in float32 the gradient of queries, those of keys and values, these again as a message, and
the incoming message. In the inputs' dtype it holds the gathered 2n, their own message, and gradients of this piece and
of the previous one.

This was read off torch 2.13, and compared with its ring over a CPU's kernel. A GPU's kernels take additional memory in
backward, one queries' gradient in float32 (arXiv:2307.08691), which has not been measured. On ranks other than the
first, in 16 bits, two more such tensors are alive at once. They are not counted: less than 2 % of the measured peaks.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from assay.cost import layers
from assay.cost.attention_tape import FLASH
from assay.cost.kernels import CPU, Kernels
from assay.cost.layers import FRESH, Tape, Writer
from assay.cost.operation import Collectives, Exchange, Flops, Gradient, Operation, Scratch, Sending, Tensor
from assay.cost.rewrites.attention_cores import CORE, exchange_core
from assay.cost.step_cost import Cost

_AXIS = "cp"
_BESIDE_GATHERED_FORWARD, _WIDE_BACKWARD, _NARROW_BACKWARD = 4, 7, 4
"""Number of tensors as large as a rank's queries, in addition to those that are returned."""


def ring(site: str, q: Tensor, k: Tensor, v: Tensor, *, place: int, ranks: int, kernels: Kernels) -> Tape:
    """Attention of the rank at `place`: queries, keys and values `[B, H, T/n, d]` to merged heads `[B, T/n, H·d]`."""
    tape = Writer(site, {one.name: one for one in (q, k, v)})
    rows, heads, length, depth = q.shape
    # A rank computes its own piece whole, and half of each other rank's: 4·T²·d a head if nothing were left out.
    whole = 4 * rows * heads * length * length * depth
    flops = whole * (ranks + 1) // 2
    out = tape.made("mixed", q.shape, q.dtype)
    row_sums = Tensor(f"{site}:logsumexp", (rows, heads, length, 1), wide=True)
    gathered = Tensor(f"{site}:gathered", (rows, heads, 2 * ranks * length, depth), q.dtype)
    arriving = Tensor(f"{site}:arriving", (rows, heads, 2 * length, depth), wide=True)
    exchanges = (
        Exchange(Sending("all_gather", _AXIS), gathered.name),
        Exchange(Sending("all_gather", _AXIS), gathered.name, back=True),
        Exchange(Sending("all_to_all", _AXIS), arriving.name, ranks, back=True),
    )
    tape.write(
        FLASH,
        "contraction",
        (q, k, v),
        (out,),
        (FRESH, FRESH, FRESH),
        saves=(q, k, v, out, row_sums),
        extras=(row_sums,),
        # Negative padding: one device computes the products that the ring leaves out, and these count as needed.
        flops=Flops(flops, flops * 5 // 2, (flops - ranks * whole) * 7 // 2),
        scratch=Scratch(
            (gathered, *_forward(site, q, merging=place > 0)),
            (gathered, arriving, *_backward(site, q, kernels, halved=place == 0)),
        ),
        backward="ScaledDotProductFlashAttentionBackward",
        autocast="low",
        collectives=Collectives(exchanges=exchanges),
    )
    merge = layers.copy if heads > 1 and place < ranks - 1 else layers.view
    merge(tape, out, "merged", (rows, length, heads * depth))
    return tuple(tape.operations)


def _forward(site: str, q: Tensor, *, merging: bool) -> Iterator[Tensor]:
    """Temporaries of forward, each like the queries: four of a merge, or on the first rank four others.

    The latter are own keys and values, side by side and as a message, and the widened first result.
    """
    for index in range(_BESIDE_GATHERED_FORWARD):
        yield Tensor(f"{site}:piece{index}", q.shape, q.dtype, wide=merging or index < _BESIDE_GATHERED_FORWARD // 2)


def _backward(site: str, q: Tensor, kernels: Kernels, *, halved: bool) -> Iterator[Tensor]:
    """Temporaries of backward: sums, messages, and gradients of two pieces, the later of half the keys or queries.

    Such halves are not contiguous, so a kernel copies that half of the incoming gradient.
    """
    of_kernel = 0 if kernels == CPU else 1
    for index in range(_WIDE_BACKWARD - 2 + of_kernel):
        yield Tensor(f"{site}:sum{index}", q.shape, wide=True)
    for index in range(_NARROW_BACKWARD):
        yield Tensor(f"{site}:part{index}", q.shape, q.dtype)
    if halved:
        rows, heads, length, depth = q.shape
        for label in ("gradient", "incoming"):
            yield Tensor(f"{site}:half {label}", (rows, heads, length // 2, depth), q.dtype)
        yield Tensor(f"{site}:half row sums", (rows, heads, length // 2, 1), wide=True)


Core = Callable[[str, Tensor, Tensor, Tensor, Cost], Tape]
"""Function of a site, this rank's queries, keys and values, and the ledger. It returns the core up to `SITE:merged`."""


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
