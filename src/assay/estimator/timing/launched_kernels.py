"""The kernels that an operation of the ledger launches, forward and backward.

Each rule is read off the operators that torch's CUDA build dispatches for a step on an absent GPU. An operation that no
rule names reads its inputs and writes its results, and its backward reads and writes as much for each gradient.
"""

from collections.abc import Callable, Iterator, Mapping
from math import prod

from assay.cost import Cost, Operation
from assay.cost.attention_tape import FLASH
from assay.cost.layers import RMS_NORM
from assay.cost.operation import Gradient, Tensor
from assay.cost.rewrites.four_bits import LOOKUP, lookups, unpacked_by
from assay.cost.work import multiplied_in
from assay.hardware.measured_kernels import (
    ALIGNED,
    ATTENTION,
    BATCHED,
    EMBEDDED,
    MIXED_ADD,
    NARROWING,
    NORM,
    PLAIN,
    PRODUCT,
    WIDENING,
    Kernel,
)

Kernels = Iterator[Kernel]
Rule = Callable[[Operation, Cost], Kernels]
_CHUNKED = "aten.cross_entropy_loss"
_HALF = ("bfloat16", "float16")
_LOSS, _SOFTMAX, _MASKED, _DROPOUT, _ACTIVATION = "cross_entropy", "softmax", "masked_fill", "dropout", "gelu"
_BACKWARD_OF_ATTENTION = 2.5
"""FLOPs of a fused attention's backward over those of its forward: it computes the scores again."""


def forward(operation: Operation, cost: Cost) -> Kernels:
    """Kernels of an operation's forward."""
    if operation.compiled and operation.kind != "contraction":
        return _loop(operation, cost)
    rule = _FORWARD.get(operation.name)
    return _plain(operation, cost) if rule is None else rule(operation, cost)


def backward(operation: Operation, cost: Cost) -> Kernels:
    """Kernels of an operation's backward, without the sums of gradients that several operations return."""
    if all(one is Gradient.NONE for one in operation.gradients):
        return iter(())
    if operation.compiled and operation.kind != "contraction":
        return _loop_back(operation, cost)
    rule = _BACKWARD.get(operation.name)
    return _plain_back(operation, cost) if rule is None else rule(operation, cost)


def gradient_sum(nbytes: int, dtype: str) -> Kernel:
    """Sum of two gradients of so many bytes."""
    return Kernel(PLAIN, dtype, 3 * nbytes)


def _moved(operation: Operation, cost: Cost) -> int:
    """Bytes of what it reads and of what it writes to memory of its own."""
    sizes, made = cost.sizes, (*operation.outputs, *operation.extras)
    return sum([sizes[name] for name in operation.inputs]) + sum([sizes[o.name] for o in made if o.view_of is None])


def _dtype(operation: Operation) -> str:
    return operation.outputs[0].dtype


def _looked_up(operation: Operation, cost: Cost) -> Kernels:
    whole = unpacked_by(operation, backward=False)
    yield from _plain(operation, cost) if whole is None else _unpacked(whole)


def _looked_up_back(operation: Operation, cost: Cost) -> Kernels:
    whole = unpacked_by(operation, backward=True)
    yield from _plain_back(operation, cost) if whole is None else _unpacked(whole)


def _unpacked(whole: Tensor) -> Kernels:
    """Blocks at once: their indices, lookups of two levels each, products with scales, and casts into the matrix."""
    count = lookups(whole)
    numbers = whole.elements / count
    half = numbers / 2
    for nbytes in (5 * half, 12 * half, 8 * numbers, 4 * numbers + whole.nbytes / count):
        yield from (Kernel(PLAIN, "float32", nbytes),) * count


def _nothing(operation: Operation, cost: Cost) -> Kernels:
    return iter(())


def _plain(operation: Operation, cost: Cost) -> Kernels:
    if any(one.view_of is None for one in operation.outputs):
        yield Kernel(_DROPOUT if operation.extras else PLAIN, _dtype(operation), _moved(operation, cost))


def _plain_back(operation: Operation, cost: Cost) -> Kernels:
    """Reads the result's gradient and what was saved, and writes each input's gradient; an alias writes none."""
    if all(one.view_of is not None for one in operation.outputs):
        return
    yield from _gradients(operation, cost)


def _gradients(operation: Operation, cost: Cost) -> Kernels:
    """A kernel for each gradient that is written. Of what was saved for several, each reads its part."""
    returned = zip(operation.inputs, operation.gradients, strict=True)
    written = [name for name, how in returned if how not in (Gradient.NONE, Gradient.ALIAS, Gradient.INSIDE)]
    saved = sum(cost.sizes.get(name, 0) for name in operation.saves)
    for name in written:
        read = cost.sizes[operation.outputs[0].name] + saved // len(written)
        yield Kernel(PLAIN, _dtype(operation), read + cost.sizes[name])


def _product(operation: Operation, cost: Cost) -> Kernels:
    yield _multiplied(operation, cost, back=False)


def _product_back(operation: Operation, cost: Cost) -> Kernels:
    """One product for each factor's gradient, and a sum over rows for a bias."""
    for how in operation.gradients[:2]:
        if how is not Gradient.NONE:
            yield _multiplied(operation, cost, back=True)
    if len(operation.gradients) > 2 and operation.gradients[2] is not Gradient.NONE:
        yield Kernel(PLAIN, _dtype(operation), operation.outputs[0].nbytes)


def _multiplied(operation: Operation, cost: Cost, *, back: bool) -> Kernel:
    (x, weight, *_), (out,), sizes = operation.inputs, operation.outputs, cost.sizes
    sides = sizes[x] + sizes[weight] + sizes[out.name]
    rows = cost.values[x].shape
    shape: tuple[int, ...] = (prod(rows[:-1]), rows[-1], out.shape[-1])
    if operation.compiled:  # inductor pads sides that are not aligned (`_inductor/fx_passes/pad_mm.py` of torch 2.11)
        shape = tuple(-(-one // ALIGNED) * ALIGNED for one in shape)
    return Kernel(PRODUCT, multiplied_in(operation, cost), sides, operation.flops.forward, shape, back)


def _batched(operation: Operation, cost: Cost) -> Kernels:
    """A product of scores writes a square of them; one with scores reads it, as both products of backward do."""
    left = cost.values[operation.inputs[0]].shape
    yield _of_batch(operation, cost, back=left[-1] > operation.outputs[0].shape[-1])


def _batched_back(operation: Operation, cost: Cost) -> Kernels:
    for how in operation.gradients:
        if how is not Gradient.NONE:
            yield _of_batch(operation, cost, back=True)


def _of_batch(operation: Operation, cost: Cost, *, back: bool) -> Kernel:
    (left, right, *_), (out,), sizes = operation.inputs, operation.outputs, cost.sizes
    sides = sizes[left] + sizes[right] + sizes[out.name]
    count, length, inner = cost.values[left].shape[-3:]
    shape = (count, length, min(inner, out.shape[-1]))
    return Kernel(BATCHED, multiplied_in(operation, cost), sides, operation.flops.forward, shape, back)


def _attention(operation: Operation, cost: Cost) -> Kernels:
    yield _attended(operation, cost, back=False)


def _attention_back(operation: Operation, cost: Cost) -> Kernels:
    yield _attended(operation, cost, back=True)


def _attended(operation: Operation, cost: Cost, *, back: bool) -> Kernel:
    q = cost.values[operation.inputs[0]]
    kind = next((one for one in ("efficient", "cudnn") if one in operation.backward.lower()), "flash")
    flops = operation.flops.forward * (_BACKWARD_OF_ATTENTION if back else 1.0)
    return Kernel(ATTENTION + kind, multiplied_in(operation, cost), 0.0, flops, tuple(q.shape[-4:]), back)


def _norm(operation: Operation, cost: Cost) -> Kernels:
    yield _normed(operation, cost, 2, back=False)


def _norm_back(operation: Operation, cost: Cost) -> Kernels:
    yield _normed(operation, cost, 5, back=True)


def _normed(operation: Operation, cost: Cost, passes: int, *, back: bool) -> Kernel:
    x = cost.values[operation.inputs[0]]
    return Kernel(NORM, x.dtype, passes * x.nbytes, 0.0, (prod(x.shape[:-1]), x.shape[-1]), back)


def _copied(operation: Operation, cost: Cost) -> Kernels:
    if operation.inputs:
        before, after = cost.values[operation.inputs[0]], operation.outputs[0]
        yield _cast(before.dtype, after.dtype, before.nbytes + after.nbytes)


def _copied_back(operation: Operation, cost: Cost) -> Kernels:
    before, after = cost.values[operation.inputs[0]], operation.outputs[0]
    yield _cast(after.dtype, before.dtype, before.nbytes + after.nbytes)


def _cast(before: str, after: str, nbytes: int) -> Kernel:
    return Kernel(WIDENING if before in _HALF and after not in _HALF else NARROWING, after, nbytes)


def _sum(operation: Operation, cost: Cost) -> Kernels:
    mixed = len({cost.values[name].dtype for name in operation.inputs}) > 1
    yield Kernel(MIXED_ADD if mixed else PLAIN, "float32" if mixed else _dtype(operation), _moved(operation, cost))


def _sum_back(operation: Operation, cost: Cost) -> Kernels:
    """The gradient itself goes on, cast to the input's dtype; that of a table of positions is summed over the batch."""
    out = operation.outputs[0]
    for name, how in zip(operation.inputs, operation.gradients, strict=True):
        one = cost.values[name]
        if how is Gradient.INPLACE:
            yield Kernel(PLAIN, out.dtype, out.nbytes)
        elif how is not Gradient.NONE and one.dtype != out.dtype:
            yield _cast(out.dtype, one.dtype, one.nbytes + out.nbytes)


def _merged_back(operation: Operation, cost: Cost) -> Kernels:
    """The gradient of merged heads is copied for the products that read it."""
    if len(operation.outputs[0].shape) > 2 and operation.outputs[0].name.endswith(":merged"):
        yield Kernel(PLAIN, _dtype(operation), 2 * operation.outputs[0].nbytes)


def _parts_back(operation: Operation, cost: Cost) -> Kernels:
    """Gradients of parts are put together."""
    yield Kernel(PLAIN, _dtype(operation), 2 * cost.sizes[operation.inputs[0]])


def _embedded(operation: Operation, cost: Cost) -> Kernels:
    yield Kernel(PLAIN, _dtype(operation), 2 * operation.outputs[0].nbytes)


def _embedded_back(operation: Operation, cost: Cost) -> Kernels:
    yield Kernel(EMBEDDED, _dtype(operation), cost.sizes[operation.inputs[0]] + operation.outputs[0].nbytes)


def _rows(kind: str, passes: int, *, back: bool = False, source: bool = False) -> Rule:
    """A kernel that reads and writes a tensor of rows so many times; the `source` is its first input."""

    def rule(operation: Operation, cost: Cost) -> Kernels:
        one = cost.values[operation.inputs[0]] if source else operation.outputs[0]
        yield Kernel(kind, one.dtype, passes * one.nbytes, back=back)

    return rule


def _activated(operation: Operation, cost: Cost) -> Kernels:
    yield Kernel(_ACTIVATION, _dtype(operation), _moved(operation, cost))


def _picked(operation: Operation, cost: Cost) -> Kernels:
    """Reads a number of each row."""
    yield Kernel(PLAIN, "float32", 2 * cost.sizes[operation.inputs[1]])


def _pieces(operation: Operation, cost: Cost) -> Kernels:
    """A loss in chunks: the logits of each, their logarithms in float32, and their sum."""
    chunks, product, numbers = _piece(operation, cost)
    for _ in range(chunks):
        yield product
        yield from _logarithms(product.dtype, numbers)


def _pieces_back(operation: Operation, cost: Cost) -> Kernels:
    """Each chunk again, its gradient, a product for each factor, and the sum of the weight's gradients."""
    chunks, product, numbers = _piece(operation, cost)
    weight = cost.values[operation.inputs[1]]
    for _ in range(chunks):
        yield product
        yield from _logarithms(product.dtype, numbers)
        yield Kernel(_LOSS, "float32", 4 * 4 * numbers, back=True)
        if product.dtype in _HALF:
            yield Kernel(NARROWING, product.dtype, 6 * numbers)
        yield product._replace(back=True)
        if operation.gradients[1] is not Gradient.NONE:
            yield product._replace(back=True)
            yield gradient_sum(weight.nbytes, weight.dtype)


def _piece(operation: Operation, cost: Cost) -> tuple[int, Kernel, int]:
    """Number of chunks, the product of one of them, and the numbers of its logits."""
    x, weight = (cost.values[name] for name in operation.inputs[:2])
    logits = operation.scratch.forward[0]
    rows, columns, dtype = prod(x.shape[:-1]), weight.shape[0], multiplied_in(operation, cost)
    each = -(-rows // logits.chunks)
    wide = x.nbytes // x.elements
    sides = wide * (each * (x.shape[-1] + columns) + weight.elements)
    shape = (each, x.shape[-1], columns)
    return logits.chunks, Kernel(PRODUCT, dtype, sides, 2.0 * prod(shape), shape), each * columns


def _logarithms(dtype: str, numbers: int) -> Kernels:
    if dtype in _HALF:
        yield Kernel(WIDENING, "float32", 6 * numbers)
    yield Kernel(_LOSS, "float32", 2 * 4 * numbers)


def _loop(operation: Operation, cost: Cost) -> Kernels:
    """A compiled loop writes only what is not computed where it is read. A loss reads its logits twice."""
    if operation.name == "aten._log_softmax":
        logits = cost.values[operation.inputs[0]]
        yield Kernel(_LOSS, logits.dtype, 2 * logits.nbytes)
    elif any(one.view_of is None and one.shape for one in operation.outputs):
        yield Kernel(PLAIN, _dtype(operation), _moved(operation, cost))


def _loop_back(operation: Operation, cost: Cost) -> Kernels:
    if operation.name == "aten._log_softmax":
        logits = cost.values[operation.inputs[0]]
        yield Kernel(_LOSS, logits.dtype, 2 * logits.nbytes, back=True)
    elif operation.name in (NORM_NAME, RMS_NORM):
        yield from _norm_back(operation, cost)
    else:
        yield from _gradients(operation, cost)


NORM_NAME = "aten.native_layer_norm"
_FORWARD: Mapping[str, Rule] = {
    "aten.mm": _product,
    "aten.addmm": _product,
    "aten.bmm": _batched,
    LOOKUP: _looked_up,
    FLASH: _attention,
    NORM_NAME: _norm,
    RMS_NORM: _norm,
    "aten._to_copy": _copied,
    "aten.add": _sum,
    "aten.embedding": _embedded,
    "aten.gelu": _activated,
    "aten.silu": _activated,
    "aten._softmax": _rows(_SOFTMAX, 2),
    "aten._safe_softmax": _rows(_SOFTMAX, 2),
    "aten._log_softmax": _rows(_LOSS, 2),
    "aten.masked_fill": _rows(_MASKED, 2),
    "aten.nll_loss_forward": _picked,
    "aten.view": _nothing,
    "aten.split": _nothing,
    _CHUNKED: _pieces,
}
_BACKWARD: Mapping[str, Rule] = {
    "aten.mm": _product_back,
    "aten.addmm": _product_back,
    "aten.bmm": _batched_back,
    LOOKUP: _looked_up_back,
    FLASH: _attention_back,
    NORM_NAME: _norm_back,
    RMS_NORM: _norm_back,
    "aten._to_copy": _copied_back,
    "aten.add": _sum_back,
    "aten.clone": _merged_back,
    "aten.embedding": _embedded_back,
    "aten._softmax": _rows(_SOFTMAX, 6, back=True),
    "aten._safe_softmax": _rows(_SOFTMAX, 6, back=True),
    "aten._log_softmax": _rows(_LOSS, 3, back=True),
    "aten.masked_fill": _rows(_MASKED, 2, back=True),
    "aten.nll_loss_forward": _rows(_LOSS, 1, back=True, source=True),
    "aten.view": _nothing,
    "aten.split": _parts_back,
    _CHUNKED: _pieces_back,
}
