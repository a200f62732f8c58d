"""Properties of one operator call: its name, class, dtype, FLOPs and least bytes moved.

The classes are those of arXiv:2007.00072: tensor contractions, statistical normalizations and element-wise operators.
Normalizations are all operators that reduce, such as softmax, norms, losses and a bias's gradient. Data movement and
communication are added.

A multiply-add counts as two FLOPs. Only contractions have FLOPs, by the closed forms of `torch.utils.flop_counter`. A
fused attention kernel counts as its whole products, without regard to masking: two in forward, and five in backward,
which recomputes the scores. Unfused attention has two and four. Torch's table lacks the CPU kernel, which is added.

Bytes are the sizes of tensor arguments and results: the least that the operator moves when nothing stays in a cache.
Views and allocations without a value move none.
"""

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from assay.instruments.memory.storages import dtype_name
from assay.records.trace import OperationClass


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


_COLLECTIVES = {"c10d", "_c10d_functional", "c10d_functional", "_dtensor", "symm_mem"}
_CONTRACTION_PARTS = ("_scaled_dot_product", "_flash_attention", "_efficient_attention", "convolution", "_grouped_mm")
_CONTRACTIONS = _names("mm bmm addmm baddbmm addbmm _scaled_mm _int_mm mv addmv dot vdot linear mkldnn_linear matmul")
_NORMALIZATION_PARTS = ("softmax", "_norm", "nll_loss", "cross_entropy", "logsumexp")
_NORMALIZATIONS = _names("sum nansum mean var var_mean std std_mean norm amax amin aminmax max min prod any all")
_MOVEMENTS = _names(
    """clone copy copy_ _to_copy _copy_from _foreach_copy_ cat stack embedding embedding_dense_backward index
    index_select index_put index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put index_add index_add_ index_copy_
    gather scatter scatter_ scatter_add scatter_add_ masked_select nonzero take slice_backward select_backward
    slice_scatter select_scatter new_zeros new_ones new_full zeros zeros_like ones ones_like full full_like fill_ zero_
    _foreach_zero_ scalar_tensor arange linspace eye tril triu repeat roll flip constant_pad_nd split_with_sizes_copy
    set_ resize_ _local_scalar_dense record_stream"""
)
_RESERVATIONS = _names("empty empty_like empty_strided new_empty new_empty_strided")
_READ_BY_HOST = _names("_local_scalar_dense item is_nonzero nonzero masked_select equal _unique2 unique_dim")

Formula = Callable[..., int]


@cache
def name_of(operator: OpOverload) -> str:
    """Torch's name without the default overload: `aten.mm`, `aten.add.Tensor`."""
    return str(operator).removesuffix(".default")


@cache
def class_of(operator: OpOverload, *, view: bool) -> OperationClass:
    """The class of a call; `view` is True if its results are views of its arguments."""
    base = _base(operator)
    if operator.namespace in _COLLECTIVES:
        return "communication"
    if base.removesuffix("_") in _CONTRACTIONS or any(part in base for part in _CONTRACTION_PARTS):
        return "contraction"
    if view or base in _MOVEMENTS or base in _RESERVATIONS:
        return "movement"
    if base in _NORMALIZATIONS or any(part in base for part in _NORMALIZATION_PARTS):
        return "normalization"
    return "elementwise"


def is_view(operator: OpOverload, arguments: list[torch.Tensor], results: list[torch.Tensor]) -> bool:
    """True if every result shares the storage of an argument, and the operator changes no argument."""
    if not results or written_arguments(operator):
        return False
    given = {one.untyped_storage()._cdata for one in arguments}
    return all(one.untyped_storage()._cdata in given for one in results)


@cache
def written_arguments(operator: OpOverload) -> tuple[tuple[int, str], ...]:
    """Place and name of each argument that an operator changes; empty if it changes none."""
    arguments = enumerate(operator._schema.arguments)
    return tuple((place, one.name) for place, one in arguments if one.alias_info and one.alias_info.is_write)


def dtype_of(arguments: list[torch.Tensor], results: list[torch.Tensor]) -> str:
    """Dtype of the first floating-point argument, else of the first result, else of the first argument."""
    for one in arguments:
        if one.is_floating_point():
            return dtype_name(one.dtype)
    first = results or arguments
    return dtype_name(first[0].dtype) if first else "none"


def multiplied_in(dtype: str, arguments: list[torch.Tensor]) -> str:
    """Number format of a contraction: its dtype, or `tf32` if a GPU may round float32 to that in the kernel."""
    allowed = torch.get_float32_matmul_precision() != "highest"
    return "tf32" if dtype == "float32" and allowed and any(one.device.type == "cuda" for one in arguments) else dtype


def bytes_of(operator: OpOverload, tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of arguments and results, without the repetitions of expanded tensors."""
    if _base(operator) in _RESERVATIONS:
        return 0
    return sum([min(one.numel() * one.element_size(), one.untyped_storage().nbytes()) for one in tensors])


def flops_of(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """FLOPs of a contraction; 0 if there is no formula for it."""
    formula = _formula(operator)
    if formula is None:
        base = _base(operator).removesuffix("_")
        return _MORE_FLOPS[base](*args) if base in _MORE_FLOPS else 0
    if not kwargs and all(isinstance(one, torch.Tensor) for one in (*args, result)):
        return _flops_of_shapes(formula, tuple(one.shape for one in args), result.shape)
    return int(formula(*args, **kwargs, out_val=result))


@cache
def _formula(operator: OpOverload) -> Formula | None:
    """Torch's formula of a contraction; an operator in place has that of the one that returns a new tensor."""
    base = _base(operator).removesuffix("_")
    packet = getattr(torch.ops.aten, base) if operator.namespace == "aten" else operator.overloadpacket
    return flop_registry.get(packet)


@lru_cache(maxsize=4096)
def _flops_of_shapes(formula: Formula, shapes: tuple[torch.Size, ...], result: torch.Size) -> int:
    """FLOPs of a contraction of tensors alone; torch's formula, which is slow, reads their shapes only."""
    return int(formula(*shapes, out_val=result))


def waits_for_device(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
    """True if the host waits: for a value (`item` and similar), or for a blocking copy between host and accelerator.

    `tolist` and `numpy` of a CPU tensor call no operator, so they are not seen.
    """
    base = _base(operator)
    if base in _READ_BY_HOST:
        return True
    if base not in ("_to_copy", "copy_") or not isinstance(result, torch.Tensor):
        return False
    if kwargs.get("non_blocking") or args[2:] == (True,):
        return False
    return len({one.device.type for one in (result, *tensors_in(*args, *kwargs.values()))}) > 1


def tensors_in(*values: Any) -> list[torch.Tensor]:
    """Every tensor in nested arguments or results, in order."""
    found: list[torch.Tensor] = []
    _collect(values, found)
    return found


def _collect(values: Iterable[Any], found: list[torch.Tensor]) -> None:
    for one in values:
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, (list, tuple)):
            _collect(one, found)
        elif isinstance(one, dict):
            _collect(one.values(), found)


@cache
def _base(operator: OpOverload) -> str:
    """The operator's name alone: `add` for `aten.add.Tensor`."""
    return operator._schema.name.partition("::")[2]


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any) -> int:
    keys, values = _for_each_query(query, key), _for_each_query(query, value)
    return int(sdpa_flop_count(query.shape, keys, values))  # type: ignore[no-untyped-call]


def _attention_backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any
) -> int:
    keys, values = _for_each_query(query, key), _for_each_query(query, value)
    return int(sdpa_backward_flop_count(gradient.shape, query.shape, keys, values))  # type: ignore[no-untyped-call]


def _for_each_query(query: torch.Tensor, shared: torch.Tensor) -> torch.Size:
    """Shape of keys or values with one head for each head of the queries, which formulas before torch 2.13 need."""
    return torch.Size((shared.shape[0], query.shape[1], *shared.shape[2:]))


_MORE_FLOPS: dict[str, Formula] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "mv": lambda matrix, vector: 2 * matrix.numel(),
    "addmv": lambda bias, matrix, vector: 2 * matrix.numel(),
    # The groups' sizes, another argument, sum to a dimension of the factors, so the formula does not need them.
    "_grouped_mm": lambda left, right, *rest: 2 * left.numel() * right.size(-1),
    "dot": lambda left, right: 2 * left.numel(),
    "vdot": lambda left, right: 2 * left.numel(),
    "addbmm": lambda bias, left, right: 2 * left.numel() * right.size(-1),
}
