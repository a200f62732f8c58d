"""Bytes that CUDA's sums and means take inside: partial sums of blocks that share an output, and their semaphores.

Source: `aten/src/ATen/native/cuda/Reduce.cuh`, `setReduceConfig`, `global_memory_size` and `semaphore_size` of torch
2.11; the order of dimensions is that of `aten/src/ATen/TensorIterator.cpp`, `reorder_dimensions` and
`coalesce_dimensions`. Row: ``torch encoder bf16 odd``, whose head's gradient of a bias takes 90 MB for 16 KB.
"""

from collections.abc import Sequence
from typing import NamedTuple

from assay.cost.kernels import Gpu

_THREADS, _WARP = 512, 32
"""Most threads of a block, and threads of a warp."""
_LEAST_VALUES, _MOST_VALUES = 16, 256
"""Values that a thread sums at least and at most, if blocks share an output."""
_VECTOR = 4
"""Values that one load reads."""


class _Dimension(NamedTuple):
    """One dimension of the input: its size, its stride in elements, whether it is reduced."""

    size: int
    stride: int
    reduced: bool


class Reduction(NamedTuple):
    """A sum or mean over some dimensions."""

    shape: Sequence[int]
    strides: Sequence[int]
    """In elements."""
    reduced: Sequence[int]
    """Indices of the dimensions that are summed; all of them if it is empty."""
    sum_itemsize: int
    """Bytes of one partial sum: 4 for 16-bit values."""
    offset: int = 0
    """First element of the input in its storage."""

    @property
    def dimensions(self) -> list[_Dimension]:
        """Dimensions as the kernel sees them: reduced ones first, by stride, neighbours in memory as one."""
        every = {one % len(self.shape) for one in self.reduced or range(len(self.shape))}
        found: list[_Dimension] = []
        listed = zip(self.shape, self.strides, strict=True)
        split = [_Dimension(size, stride, index in every) for index, (size, stride) in enumerate(listed) if size != 1]
        for one in sorted(split, key=lambda one: (not one.reduced, one.stride)):
            last = found[-1] if found else None
            if last and last.reduced == one.reduced and last.size * last.stride == one.stride:
                found[-1] = last._replace(size=last.size * one.size)
            else:
                found.append(one)
        return found


def contiguous(shape: Sequence[int]) -> list[int]:
    """Return the strides of a contiguous tensor, in elements."""
    strides = [1] * len(shape)
    for index in range(len(shape) - 1, 0, -1):
        strides[index - 1] = strides[index] * shape[index]
    return strides


def inside_bytes(reduction: Reduction, gpu: Gpu) -> int:
    """Return the bytes that the kernel takes and frees."""
    dimensions = reduction.dimensions
    inputs, outputs = _product(dimensions, reduced=True), _product(dimensions, reduced=False)
    if inputs * outputs == 0:
        return 0
    first = next((one for one in dimensions if one.reduced), None)
    kept = next((one for one in dimensions if not one.reduced), None)
    along = kept is None or first is None or first.stride < kept.stride
    vector = 1
    width, height = (inputs, outputs) if along else (outputs, inputs)
    if along and first is not None and first.stride == 1 and width >= 128 and len(dimensions) == 1:
        width //= _VECTOR
    elif not along and kept is not None and kept.stride == 1:
        vector = _output_vector(reduction, dimensions, kept)
        width //= vector
    width, height = _block(width, height, _THREADS // vector)
    return _global_bytes(inputs, outputs // vector, (width, height), vector, reduction.sum_itemsize, gpu, along=along)


def _global_bytes(
    inputs: int, outputs: int, block: tuple[int, int], vector: int, itemsize: int, gpu: Gpu, *, along: bool
) -> int:
    """Return the bytes of partial sums and semaphores; 0 if each output has a block or less."""
    width, height = block
    values = _over(inputs, width) if along else inputs
    if values < height * _LEAST_VALUES and values < _MOST_VALUES:
        return 0  # each row of threads has an output of its own
    values = _over(values, height)
    grid = _over(outputs, 1 if along else width)
    target = gpu.multiprocessors * (gpu.threads // (width * height))
    if values < _MOST_VALUES or grid > target:
        return 0
    blocks = max(min(_over(target, grid), _over(values, _LEAST_VALUES)), _over(values, _MOST_VALUES))
    if blocks <= 1:
        return 0
    partial = itemsize * outputs * vector * blocks * (1 if along else width * vector)
    return partial + 4 * grid


def _output_vector(reduction: Reduction, dimensions: Sequence[_Dimension], kept: _Dimension) -> int:
    """Return how many neighbouring outputs one thread sums: as many as all rows are aligned to."""
    vector = _VECTOR
    rest = [one.stride for one in dimensions if one is not kept]
    while any(number % vector for number in (reduction.offset, kept.size, *rest)):
        vector //= 2
    return vector


def _block(width: int, height: int, threads: int) -> tuple[int, int]:
    """Return the width and height of a block of threads, powers of two."""
    wide, high = (min(1 << max(one, 1).bit_length() - 1, threads) for one in (width, height))
    height = min(high, threads // min(wide, _WARP))
    return min(wide, threads // height), height


def _over(count: int, parts: int) -> int:
    return -(-count // parts)


def _product(dimensions: Sequence[_Dimension], *, reduced: bool) -> int:
    count = 1
    for one in dimensions:
        if one.reduced is reduced:
            count *= one.size
    return count
