"""Bytes that a GPU takes beside the results of a tape's operations: inside of kernels, and workspaces of libraries.

Each formula follows the allocations of torch 2.11, in the file that it names. Those of torch 2.11 on an absent H200 and
A100 are the measure (`tests/fake/test_absent_oracle.py`). `heads` counts sequences × heads.

A bias's gradient is the sum of the rows of its result's gradient, and that of positions the sum over the sequences of a
batch. Blocks of threads that share an output write their sums to memory first (`reductions`). The norms of heads read
rows that are apart, and copy them.

cuBLAS and cuBLASLt keep workspaces, from torch's own allocator. A thread takes them at its first product and keeps
them. There are two threads: the caller's, and that of autograd, which runs backward and what it recomputes.
"""

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import ceil

from assay.cost.attention_tape import CUDNN, EFFICIENT, FLASH, GPU_FLASH, kernel_of
from assay.cost.kernels import Gpu
from assay.cost.layers import GROUPED, RMS_NORM
from assay.cost.operation import DTYPE_BYTES, Gradient, Operation, Tensor
from assay.cost.reductions import Reduction, contiguous, inside_bytes

KIB = 2**10
CALLER, AUTOGRAD = "caller", "autograd"
"""Threads that multiply."""
CUBLAS, CUBLASLT = "cublas", "cublaslt"
_LIBRARIES = {"aten.addmm": (CUBLAS, CUBLASLT), "aten._scaled_mm": (CUBLASLT,), FLASH: ()}
"""Libraries of products that use others than cuBLAS alone."""


def workspaces(capability: tuple[int, int]) -> dict[str, int]:
    """Return the bytes that each thread keeps on a GPU of a capability, by library."""
    return {CUBLAS: cublas_workspace(capability), CUBLASLT: cublaslt_workspace()}


def libraries(operation: Operation) -> tuple[str, ...]:
    """Return the libraries that an operation multiplies with in forward."""
    return _LIBRARIES.get(operation.name, (CUBLAS,)) if operation.kind == "contraction" else ()


def cublas_workspace(capability: tuple[int, int]) -> int:
    """Return the bytes that cuBLAS keeps for a thread: 4096 × 8 KiB on Hopper, else 4096 × 2 KiB and 16 × 8 KiB.

    Source: `aten/src/ATen/cuda/CublasHandlePool.cpp`, `parseChosenWorkspaceSize`; the variable
    ``CUBLAS_WORKSPACE_CONFIG`` replaces them with pairs ``:KIB:COUNT``. Rows: every one.
    """
    words = [int(one) for one in os.environ.get("CUBLAS_WORKSPACE_CONFIG", "").split(":") if one.isdigit()]
    if words and len(words) % 2 == 0:
        return sum(KIB * size * count for size, count in zip(words[::2], words[1::2], strict=True))
    return 4096 * 8 * KIB if capability == (9, 0) else 4096 * 2 * KIB + 16 * 8 * KIB


def cublaslt_workspace() -> int:
    """Return the bytes that cuBLASLt keeps for a thread: 1 MiB, or ``CUBLASLT_WORKSPACE_SIZE`` in KiB.

    Source: `aten/src/ATen/cuda/CUDABlas.cpp`, `getCUDABlasLtWorkspaceSize`. Rows: ``gpt2-124m`` has it and
    ``llama-3.2-1b``, whose products have no bias, lacks it.
    """
    return int(os.environ.get("CUBLASLT_WORKSPACE_SIZE", "1024")) * KIB


_FLOAT32, _INT64 = 4, 8
_HOPPER = (9, 0)
_DESCRIPTOR = 128
"""Bytes of a descriptor of a tensor."""
_CHUNK = 65536
"""Elements of which one block of a list of norms sums (`MultiTensorApply.cuh`, `kChunkSize`)."""
_SORTED = 3072
"""Most indices whose gradients one kernel adds without sorting them."""
_ROWS_AT_ONCE = 10
"""Rows that one thread sums of a sorted gradient (`EmbeddingBackwardKernel.cu`, `NROWS_PER_THREAD`)."""
_TALL, _ROWS_OF_BLOCK, _COLUMNS_OF_BLOCK, _MOST_BLOCKS = 64 * 1024, 32, 32, 32 * 1024
"""Rows beyond which a norm's backward sums by parts, and sizes of these."""


def flash_forward(heads: int, length: int, depth: int, gpu: Gpu, *, noise: bool) -> int:
    """Return the bytes of results that are split along the keys because there are few heads.

    Source: `flash_attn/flash_api.cpp`, `set_params_splitkv`; with `noise` nothing is split.
    """
    block = 256 if depth <= 64 else 128 if depth <= 128 else 64
    splits = 1 if noise else _splits(heads * _over(length, 64), 2 * gpu.multiprocessors, _over(length, block))
    return 0 if splits == 1 else splits * heads * length * (_wide(depth) + 1) * _FLOAT32


def _splits(blocks: int, processors: int, keys: int) -> int:
    """Return the number of parts of the keys (`num_splits_heuristic`)."""
    if blocks >= 0.8 * processors:
        return 1
    most = min(128, processors, keys)
    eligible = [one for one in range(1, most + 1) if one == 1 or _over(keys, one) != _over(keys, one - 1)]
    waves = {one: blocks * one / processors for one in eligible}
    efficiency = {one: wave / ceil(wave) for one, wave in waves.items()}
    best = max(efficiency.values(), default=1.0)
    return next((one for one in eligible if efficiency[one] >= 0.85 * best), 1)


def flash_backward(heads: int, length: int, depth: int) -> int:
    """Return the bytes of the queries' gradient in float32 and of a sum for each row (`flash_api.cpp`, `mha_bwd`)."""
    return heads * _over(length, 128) * 128 * (_wide(depth) + 1) * _FLOAT32


def cudnn_backward(heads: int, length: int, depth: int) -> int:
    """Return the bytes of the same in cuDNN's workspace, as an absent GPU has them: no source of cuDNN is public."""
    return heads * length * (depth + 1) * _FLOAT32


def efficient_backward(heads: int, length: int, depth: int, itemsize: int) -> int:
    """Return the bytes of the queries' gradient in blocks, and of a sum for each row.

    In float32 that sum is made before, of a product as large as the output. Source:
    `mem_eff_attention/kernel_backward.h`, `workspace_elements_gq`, on compute capability 8.0 and newer.
    """
    wide = _over(depth, 128) * 128 if depth > 64 else 64
    rows = 128 if depth > 64 and itemsize < _FLOAT32 else 64
    workspace = heads * _over(length, rows) * (rows * wide * _FLOAT32 + 16)
    sums = heads * length * _FLOAT32
    return sums + max(workspace, sums + sums * depth if itemsize == _FLOAT32 else 0)


@lru_cache(maxsize=64)
def norm_backward(rows: int, width: int, itemsize: int, parameters: int, gpu: Gpu) -> int:
    """Return the bytes of partial gradients of a norm's trained parameters, if it has many short rows.

    Source: `layer_norm_kernel.cu`, `LaunchGammaBetaBackwardCUDAKernel`.
    """
    if not parameters or rows <= _TALL or width // _COLUMNS_OF_BLOCK >= gpu.multiprocessors // 2:
        return 0
    parts = min(_over(rows, _ROWS_OF_BLOCK), _MOST_BLOCKS // _over(width, _COLUMNS_OF_BLOCK))
    summed = Reduction((parts, width), (width, 1), (0,), max(itemsize, _FLOAT32))
    return (parameters * parts + 1) * width * itemsize + inside_bytes(summed, gpu)


def embedding_backward(indices: int, rows: int, width: int) -> int:
    """Return the bytes of sorted indices and of sums of their gradients, from 3073 indices on.

    Source: `Embedding.cu`, `embedding_dense_backward_cuda`, and `EmbeddingBackwardKernel.cu`. Left out is what the sort
    takes before, which is more only for a vocabulary of few tokens.
    """
    if indices <= _SORTED:
        return 0
    segments = min(indices, rows)
    partial = indices // _ROWS_AT_ONCE + segments
    return _INT64 * (3 * indices + 2 * segments + partial + 2) + _FLOAT32 * partial * width


def safe_softmax(elements: int, length: int) -> int:
    """Return the bytes of what searches for rows without any score (`SoftMax.cpp`, `_safe_softmax`)."""
    return elements + elements // length + _FLOAT32


def grouped_product(groups: int, gpu: Gpu) -> int:
    """Return the bytes of each group's arguments, and of four descriptors of tensors for each multiprocessor.

    Only a Hopper multiplies all groups by one kernel. Source: `cuda/GroupMM.cu`, `bf16bf16_grouped_gemm_impl_sm90`, and
    CUTLASS's workspace of it.
    """
    return 60 * groups + 4 * _DESCRIPTOR * gpu.multiprocessors if gpu.capability == _HOPPER else 0


def norms_of_list(sizes: Iterable[int]) -> int:
    """Return the bytes of sums of chunks of a list of gradients, in elements (`ForeachReduceOp.cu`)."""
    counted = list(sizes)
    return len(counted) * _over(max(counted, default=0), _CHUNK) * _FLOAT32


@lru_cache(maxsize=256)
def norm_of_one(elements: int, gpu: Gpu) -> int:
    """Return the bytes of partial sums of one gradient's norm."""
    return inside_bytes(Reduction((elements,), (1,), (), _FLOAT32), gpu)


def norm_along(shape: tuple[int, ...], dimension: int, gpu: Gpu) -> int:
    """Return the bytes of partial sums of a contiguous matrix's norms along one dimension."""
    return inside_bytes(Reduction(shape, contiguous(shape), (dimension,), _FLOAT32), gpu)


def _wide(depth: int) -> int:
    """Width of a head in a flash kernel's buffers."""
    return _over(depth, 32) * 32 if depth <= 192 else 256


def _over(count: int, parts: int) -> int:
    return -(-count // parts)


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
        return flash_forward(heads, length, depth, gpu, noise=operation.noisy)
    if operation.name == GROUPED:
        return grouped_product(values[operation.inputs[1]].shape[0], gpu)
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
        parts = norm_backward(rows, x.shape[-1], DTYPE_BYTES[x.dtype], parameters, gpu)
        return parts + _copied(operation, values)
    if operation.name == "aten.embedding":
        table, indices = (values[name] for name in operation.inputs)
        return embedding_backward(indices.elements, *table.shape)
    return _attention(operation, gpu) if operation.name == FLASH and operation.backend else 0


def _attention(operation: Operation, gpu: Gpu) -> int:
    out = operation.outputs[0]
    heads, length, depth = out.shape
    kernel = kernel_of(operation.backend, out.dtype, out.shape, gpu)
    if kernel == EFFICIENT:
        return efficient_backward(heads, length, depth, DTYPE_BYTES[out.dtype])
    return (cudnn_backward if kernel == CUDNN else flash_backward)(heads, length, depth)


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
