"""What kernels of a GPU take inside of an operation's backward, and free: partial sums.

A bias's gradient is the sum of the rows of its result's gradient, and that of positions the sum over the sequences of
a batch. Blocks of threads that share an output write their sums to memory first (`reductions`).
"""

from collections.abc import Mapping
from functools import lru_cache

from assay.cost.kernels import Gpu
from assay.cost.operation import Gradient, Operation
from assay.cost.reductions import Reduction, inside_bytes
from assay.cost.tensors import DTYPE_BYTES, Tensor

_LEAST_ITEMSIZE = 4
"""Bytes of a partial sum of 16-bit values."""


def sums_inside(operation: Operation, values: Mapping[str, Tensor], gpu: Gpu) -> int:
    """Return the bytes that the largest sum of an operation's backward takes inside."""
    if not operation.outputs:
        return 0
    out = operation.outputs[0]
    most = 0
    for name, how in zip(operation.inputs, operation.gradients, strict=True):
        value = values[name]
        if how is not Gradient.NONE and _is_summed(operation, value, out):
            most = max(most, _summed(out.shape, len(value.shape), out.dtype, gpu))
    return most


def _is_summed(operation: Operation, value: Tensor, out: Tensor) -> bool:
    """True if a value was added to each row of the result: a bias, or positions."""
    added = operation.name in ("aten.addmm", "aten.add")
    return (
        added
        and not value.batched
        and 0 < len(value.shape) < len(out.shape)
        and out.shape[-len(value.shape) :] == value.shape
    )


@lru_cache(maxsize=256)
def _summed(shape: tuple[int, ...], kept: int, dtype: str, gpu: Gpu) -> int:
    """Return the bytes inside of a sum of contiguous rows, which leaves the last `kept` dimensions."""
    strides = [1] * len(shape)
    for index in range(len(shape) - 1, 0, -1):
        strides[index - 1] = strides[index] * shape[index]
    summed = range(len(shape) - kept)
    return inside_bytes(Reduction(shape, strides, tuple(summed), max(DTYPE_BYTES[dtype], _LEAST_ITEMSIZE)), gpu)
