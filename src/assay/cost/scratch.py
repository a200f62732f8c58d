"""Scratch that oneDNN takes from torch's allocator for a product in 16 bits, in addition to tensors: an upper bound.

Torch passes such products to oneDNN on x86 processors with AVX-512: those in bfloat16 from `avx512_core` on, those in
float16 from `avx512_core_fp16` on. The scratch depends on the library's choice of blocks, so the ledger gives a range:
from nothing to this bound. Two kernels take it:

- Without native bfloat16 (`avx512_core`, `avx512_core_vnni`) a product accumulates in a float32 matrix of its own. A
  batched product has one for each thread.
- With native products each thread copies a block of either factor, at most 256 rows and 512 columns of up to 4096 inner
  elements. It accumulates one block of the result in float32.

The bounds held for 1,494 products on one and two threads, with sides from 1 to 12,288, in torch 2.13 on a processor
with `avx512_core_bf16`. Newer instruction sets use the second kernel; they were not measured. The scratch on other
processors is not known.
"""

from collections.abc import Iterator
from typing import NamedTuple

from assay.cost.step import Cost
from assay.cost.tape import Operation

_WITHOUT = ("sse41", "avx", "avx2", "avx2_vnni")
_ACCUMULATING = ("avx512_core", "avx512_core_vnni")
_WITHOUT_FLOAT16 = (*_ACCUMULATING, "avx512_core_bf16")
_ROWS, _COLUMNS, _INNER = 256, 512, 4096
"""Sides of the largest block."""
_SLACK = 4096
"""Bytes of bookkeeping for each thread."""


class _Product(NamedTuple):
    """Products of `matrices` matrices `[rows, inner] × [inner, columns]`, one after the other or on several threads."""

    matrices: int
    rows: int
    inner: int
    columns: int


def library_scratch(cost: Cost, instruction_set: str, threads: int) -> int | None:
    """Most bytes that one product of a step may take at once; None if the processor's library is not known."""
    if not instruction_set:
        return None
    if instruction_set in _WITHOUT:
        return 0
    narrow = {"bfloat16"} if instruction_set in _WITHOUT_FLOAT16 else {"bfloat16", "float16"}
    bound = _accumulated if instruction_set in _ACCUMULATING else _blocks
    return max((bound(one, threads) for one in _products(cost, narrow)), default=0)


def _products(cost: Cost, dtypes: set[str]) -> Iterator[_Product]:
    values = cost.values
    for operation in cost.tape:
        if operation.kind == "contraction" and values[operation.inputs[0]].dtype in dtypes:
            yield from _of_operation(operation, cost)
    for product in cost.rule.products(cost.updated):
        if product.dtype in dtypes:
            yield _Product(1, product.rows, product.inner, product.columns)


def _of_operation(operation: Operation, cost: Cost) -> Iterator[_Product]:
    """The product and those of its backward; none for a fused attention kernel, which is not the library's."""
    if len(operation.inputs) < 2 or "attention" in operation.name:
        return
    left, right = (cost.values[name] for name in operation.inputs[:2])
    inner = left.shape[-1]
    # The groups of a grouped product share the rows, but each has a matrix of its own.
    count = right.shape[0] if operation.name == "aten.bmm" else 1
    parts = right.shape[0] if len(right.shape) == 3 else 1
    rows, columns = left.elements // (count * inner), right.elements // (parts * inner)
    yield _Product(count, rows, inner, columns)
    yield _Product(count, rows, columns, inner)
    yield _Product(count, inner, rows, columns)
    yield _Product(count, columns, rows, inner)


def _accumulated(product: _Product, threads: int) -> int:
    return min(threads, product.matrices) * 4 * product.rows * product.columns + threads * _SLACK


def _blocks(product: _Product, threads: int) -> int:
    rows, inner = _rounded(min(product.rows, _ROWS), 16), _rounded(min(product.inner, _INNER), 32)
    columns = _rounded(min(product.columns, _COLUMNS), 64)
    return threads * (2 * inner * (rows + columns) + 4 * rows * columns + _SLACK)


def _rounded(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
