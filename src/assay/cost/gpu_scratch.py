"""Bytes that kernels of a GPU take inside of a tape's operations, in forward and in backward.

A bias's gradient is the sum of the rows of its result's gradient, and that of positions the sum over the sequences of
a batch. Blocks of threads that share an output write their sums to memory first (`reductions`). The norms of heads read
rows that are apart, and copy them.
"""

from collections.abc import Mapping
from functools import lru_cache

from assay.cost import gpu_kernels as kernels
from assay.cost.attention_tape import CUDNN, EFFICIENT, FLASH, GPU_FLASH, kernel_of
from assay.cost.kernels import Gpu
from assay.cost.layers import GROUPED, RMS_NORM
from assay.cost.operation import DTYPE_BYTES, Gradient, Operation, Tensor
from assay.cost.reductions import Reduction, contiguous, inside_bytes

Values = Mapping[str, Tensor]
_NORMS = ("aten.native_layer_norm", RMS_NORM)
_LEAST_ITEMSIZE = 4
"""Bytes of a partial sum of 16-bit values."""


def forward_scratch(operation: Operation, values: Values, gpu: Gpu) -> int:
    """Return the bytes that an operation takes beside its results."""
    if operation.name == FLASH and operation.backend:
        out = operation.outputs[0]
        if kernel_of(operation.backend, out.dtype, out.shape, gpu) != GPU_FLASH:
            return 0
        heads, length, depth = out.shape
        return kernels.flash_forward(heads, length, depth, gpu, noise=operation.noisy)
    if operation.name == GROUPED:
        return kernels.grouped_product(values[operation.inputs[1]].shape[0], gpu)
    return _copied(operation, values) if operation.name == RMS_NORM else 0


def backward_scratch(operation: Operation, values: Values, gpu: Gpu) -> int:
    """Return the most bytes that an operation's backward takes beside its results."""
    if operation.name in ("aten.addmm", "aten.add"):
        return _sums(operation, values, gpu)
    if operation.name == GROUPED:
        return forward_scratch(operation, values, gpu)
    if operation.name in _NORMS:
        x = values[operation.inputs[0]]
        rows = x.elements // x.shape[-1]
        parameters = sum(how is not Gradient.NONE for how in operation.gradients[1:])
        parts = kernels.norm_backward(rows, x.shape[-1], DTYPE_BYTES[x.dtype], parameters, gpu)
        return parts + _copied(operation, values)
    if operation.name == "aten.embedding":
        table, indices = (values[name] for name in operation.inputs)
        return kernels.embedding_backward(indices.elements, *table.shape)
    return _attention(operation, gpu) if operation.name == FLASH and operation.backend else 0


def _attention(operation: Operation, gpu: Gpu) -> int:
    out = operation.outputs[0]
    heads, length, depth = out.shape
    kernel = kernel_of(operation.backend, out.dtype, out.shape, gpu)
    if kernel == EFFICIENT:
        return kernels.efficient_backward(heads, length, depth, DTYPE_BYTES[out.dtype])
    return (kernels.cudnn_backward if kernel == CUDNN else kernels.flash_backward)(heads, length, depth)


def _copied(operation: Operation, values: Values) -> int:
    """Return the bytes of a contiguous copy of rows that are apart, as those of queries beside keys are."""
    x = values[operation.inputs[0]]
    return x.nbytes if operation.name == RMS_NORM and x.view_of is not None and len(x.shape) == 4 else 0


def _sums(operation: Operation, values: Values, gpu: Gpu) -> int:
    """Return the bytes of the largest sum of gradients over the rows to which a value was added."""
    out, most = operation.outputs[0], 0
    for name, how in zip(operation.inputs, operation.gradients, strict=True):
        value = values[name]
        if how is not Gradient.NONE and not value.batched and _is_row(value, out):
            most = max(most, _summed(out.shape, len(value.shape), out.dtype, gpu))
    return most


def _is_row(value: Tensor, out: Tensor) -> bool:
    """True for a bias, or positions: their shape is the end of the result's."""
    return 0 < len(value.shape) < len(out.shape) and out.shape[-len(value.shape) :] == value.shape


@lru_cache(maxsize=256)
def _summed(shape: tuple[int, ...], kept: int, dtype: str, gpu: Gpu) -> int:
    """Return the bytes inside of a sum of contiguous rows, which leaves the last `kept` dimensions."""
    summed = tuple(range(len(shape) - kept))
    return inside_bytes(Reduction(shape, contiguous(shape), summed, max(DTYPE_BYTES[dtype], _LEAST_ITEMSIZE)), gpu)
