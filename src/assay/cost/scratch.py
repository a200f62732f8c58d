"""Scratch that kernels take from torch's allocator in addition to tensors: an upper bound.

Fused attention on a CPU works in blocks of queries and keys. Each thread has buffers for the scores of one block: one
in forward and two in backward, in 16 bits with narrow copies. They depend on the context and the width of a head, not
on the batch or the processor (read off torch 2.13's `FlashAttentionKernel.cpp`). The backward of a layer norm sums the
gradients of its weight and its bias in a row of each thread.

The rest is oneDNN's, for products in 16 bits, also those of fused attention. Torch passes them to it on x86 processors
with AVX-512: those in bfloat16 from `avx512_core` on, those in float16 from `avx512_core_fp16` on. This scratch depends
on the library's choice of blocks, so the ledger gives a range: from nothing to this bound. Three kernels take it:

- Without native bfloat16 (`avx512_core`, `avx512_core_vnni`) a product accumulates in a float32 matrix of its own. A
  batched product has one for each thread.
- With native products each thread copies a block of either factor, at most 256 rows and 512 columns of up to 4096 inner
  elements. It accumulates one block of the result in float32. Rows of a left factor that is read transposed, as in the
  gradient of a weight, are padded. Float16 is copied as float32.
- With tiles (AMX) blocks have no largest size. A thread copies at most the left factor twice, once for its
  transposition, and the right one, and accumulates the whole result in float32. Large products stay far below that.
  Float16 has tiles only from `avx512_core_amx_fp16` on.

The bounds held for thousands of products on one and two threads, with sides from 1 to 16,000, in torch 2.13. Bfloat16
was measured with `avx512_core_bf16`, `avx512_core_fp16` and `avx512_core_amx`, and float16 with the last two.
`avx512_core_amx_fp16` was not measured. The scratch on other processors is not known.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from assay.cost.attention_tape import FLASH
from assay.cost.operation import DTYPE_BYTES, Operation, Tensor
from assay.cost.step_cost import Cost

_WITHOUT = ("sse41", "avx", "avx2", "avx2_vnni")
_ACCUMULATING = ("avx512_core", "avx512_core_vnni")
_WITHOUT_FLOAT16 = (*_ACCUMULATING, "avx512_core_bf16")
_TILES = {"avx512_core_amx": ("bfloat16",), "avx512_core_amx_fp16": ("bfloat16", "float16")}
"""Dtypes whose products use tiles."""
_ROWS, _COLUMNS, _INNER = 256, 512, 4096
"""Sides of the largest block."""
_PADDING = 64
"""Most elements by which each row of a copied left factor is longer."""
_SLACK = 4096
"""Bytes of bookkeeping for each thread."""
_QUERIES = ((768, 256), (192, 64), (0, 32))
"""Contexts, and the queries of a block of fused attention from that length on."""
_KEYS, _PACKED = 512, 64
"""Keys of its largest block, and the multiple to which packed keys are padded."""


Place = tuple[str, str]
"""Name and site of an operation."""


class _Product(NamedTuple):
    """Products of `matrices` matrices `[rows, inner] × [inner, columns]`, one after the other or on several threads."""

    matrices: int
    rows: int
    inner: int
    columns: int


class _Kernel(NamedTuple):
    """One operation: the products that take scratch, one at a time, and the buffers of each thread."""

    dtype: str
    products: tuple[_Product, ...]
    buffers: int = 0


def library_scratch(cost: Cost, instruction_set: str, threads: int) -> int | None:
    """Most bytes that one operation of a step may take at once; None if the processor's library is not known."""
    by_operation = scratch_by_operation(cost, instruction_set, threads)
    return None if by_operation is None else max(by_operation.values(), default=0)


def scratch_by_operation(cost: Cost, instruction_set: str, threads: int) -> dict[Place, int] | None:
    """Most bytes that operations may take, by name and site; backward nodes have names of their own.

    Operations that take none are left out.

    None if the processor's library is not known.
    """
    if not instruction_set:
        return None
    narrow = {"bfloat16"} if instruction_set in _WITHOUT_FLOAT16 else {"bfloat16", "float16"}
    dtypes = set() if instruction_set in _WITHOUT else narrow
    found: dict[Place, int] = {}
    for places, kernel in _kernels(cost, dtypes):
        buffers, bound = threads * kernel.buffers, product_bound(instruction_set, kernel.dtype)
        most = max((buffers + bound(one, threads) for one in kernel.products), default=buffers)
        for place in places:
            found[place] = max(found.get(place, 0), most)
    return found


def product_bound(instruction_set: str, dtype: str) -> Callable[[_Product, int], int]:
    """Return the function that bounds the scratch of products in a dtype, in bytes, on so many threads."""
    if instruction_set in _ACCUMULATING:
        return _accumulated
    if dtype in _TILES.get(instruction_set, ()):
        return _whole
    return _blocks if dtype == "bfloat16" else _blocks_in_float32


def _kernels(cost: Cost, dtypes: Collection[str]) -> Iterator[tuple[Sequence[Place], _Kernel]]:
    """Yield each kernel that takes scratch where products in `dtypes` do, with the places of its operations."""
    values = cost.values
    for operation in cost.tape:
        ahead, back = (operation.name, operation.site), (operation.backward, operation.site)
        if operation.name == FLASH:
            q = values[operation.inputs[0]]
            kernels = _fused(q.shape, q.dtype, multiplied=q.dtype in dtypes)
            yield from zip(((ahead,), (back,)), kernels, strict=True)
        elif operation.name == "aten.native_layer_norm":
            x = values[operation.inputs[0]]
            yield (back,), _Kernel(x.dtype, (), 2 * DTYPE_BYTES[x.dtype] * x.shape[-1])
        elif _multiplies(operation) and (dtype := values[operation.inputs[0]].dtype) in dtypes:
            first, *gradients = _of_operation(operation, values)
            yield (ahead,), _Kernel(dtype, (first,))
            yield (back,), _Kernel(dtype, tuple(gradients))
    rule = cost.optimizer.rule
    updates = [one for one in rule.products(cost.updated) if one.dtype in dtypes]
    for dtype in {one.dtype for one in updates}:
        products = tuple(_Product(1, one.rows, one.inner, one.columns) for one in updates if one.dtype == dtype)
        yield [(one.operation, one.site) for one in rule.instants(cost.updated)], _Kernel(dtype, products)


@lru_cache(maxsize=64)
def _fused(shape: tuple[int, ...], dtype: str, *, multiplied: bool) -> tuple[_Kernel, _Kernel]:
    """Fused attention: the scores of a block, and its sums; in backward two blocks of scores, and a sum a query.

    It has products only if they take scratch in its dtype (`multiplied`).
    """
    rows, heads, length, depth = shape
    queries = min(length, next(block for context, block in _QUERIES if length >= context))
    keys = min(length, _KEYS)
    copied = 0 if dtype == "float32" else DTYPE_BYTES[dtype]
    # Keys are padded if they are packed, which only a processor with products in float16 does.
    padded = _rounded(keys, _PACKED) if copied else keys
    forward = 4 * queries * (padded + 2 + depth) + copied * queries * padded
    backward = 2 * (4 + copied) * queries * keys + 4 * queries
    matrices = rows * heads * -(-length // queries)
    sides = permutations((queries, depth, keys)) if multiplied else ()
    products = tuple(_Product(matrices, *one) for one in sides)
    return _Kernel(dtype, products, forward), _Kernel(dtype, products, backward)


def _multiplies(operation: Operation) -> bool:
    return operation.kind == "contraction" and len(operation.inputs) > 1


def _of_operation(operation: Operation, values: Mapping[str, Tensor]) -> Iterator[_Product]:
    """The product and those of its backward."""
    left, right = (values[name] for name in operation.inputs[:2])
    inner = left.shape[-1]
    # The groups of a grouped product share the rows, but each has a matrix of its own.
    count = right.shape[0] if operation.name == "aten.bmm" else 1
    parts = right.shape[0] if len(right.shape) == 3 else 1
    rows, columns = left.elements // (count * inner), right.elements // (parts * inner)
    yield _Product(count, rows, inner, columns)
    yield _Product(count, rows, columns, inner)
    yield _Product(count, inner, rows, columns)
    yield _Product(count, columns, rows, inner)


@lru_cache
def _accumulated(product: _Product, threads: int) -> int:
    return min(threads, product.matrices) * 4 * product.rows * product.columns + threads * _SLACK


@lru_cache
def _blocks(product: _Product, threads: int, element_bytes: int = 2) -> int:
    rows, inner = _rounded(min(product.rows, _ROWS), 16), _rounded(min(product.inner, _INNER), 32)
    columns = _rounded(min(product.columns, _COLUMNS), 64)
    copied = rows * (inner + _PADDING) + inner * columns
    return threads * (element_bytes * copied + 4 * rows * columns + _SLACK)


def _blocks_in_float32(product: _Product, threads: int) -> int:
    return _blocks(product, threads, 4)


@lru_cache
def _whole(product: _Product, threads: int) -> int:
    rows, inner = _rounded(product.rows, 16), _rounded(product.inner, 32)
    columns = _rounded(product.columns, 64)
    copied = 2 * rows * (inner + _PADDING) + inner * columns
    return threads * (2 * copied + 4 * rows * columns + _SLACK)


def _rounded(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
