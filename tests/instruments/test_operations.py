"""Operators: class, FLOPs and bytes, against what can be said by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from assay.instruments import operations
from assay.records.trace import OperationClass

aten = torch.ops.aten


class Calls(TorchDispatchMode):
    """Every call with its arguments and result."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.seen.append((func, args, kwargs or {}, result))
        return result

    def flops(self) -> int:
        return sum(operations.flops_of(*call) for call in self.seen)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (aten.mm.default, "contraction"),
        (aten.addmm.default, "contraction"),
        (aten.addmm_.default, "contraction"),
        (aten.bmm.default, "contraction"),
        (aten.convolution.default, "contraction"),
        (aten._scaled_dot_product_flash_attention_for_cpu.default, "contraction"),
        (aten._scaled_dot_product_flash_attention_for_cpu_backward.default, "contraction"),
        (aten._scaled_dot_product_efficient_attention.default, "contraction"),
        (aten.native_layer_norm.default, "normalization"),
        (aten.native_layer_norm_backward.default, "normalization"),
        (aten._fused_rms_norm.default, "normalization"),
        (aten._softmax.default, "normalization"),
        (aten._log_softmax_backward_data.default, "normalization"),
        (aten.nll_loss_forward.default, "normalization"),
        (aten.sum.dim_IntList, "normalization"),
        (aten.linalg_vector_norm.default, "normalization"),
        (aten.gelu.default, "elementwise"),
        (aten.add.Tensor, "elementwise"),
        (aten.normal_.default, "elementwise"),
        (aten._foreach_mul_.Scalar, "elementwise"),
        (aten._fused_adamw_.default, "elementwise"),
        (aten.cumsum.default, "elementwise"),
        (aten.embedding.default, "movement"),
        (aten.embedding_dense_backward.default, "movement"),
        (aten.cat.default, "movement"),
        (aten.clone.default, "movement"),
        (aten._to_copy.default, "movement"),
        (aten.empty.memory_format, "movement"),
        (torch.ops._c10d_functional.all_reduce.default, "communication"),
    ],
    ids=str,
)
def test_classes(operator: Any, expected: OperationClass) -> None:
    assert operations.class_of(operator, view=False) == expected


def test_names_lose_the_default_overload_only() -> None:
    assert operations.name_of(aten.mm.default) == "aten.mm"
    assert operations.name_of(aten.add.Tensor) == "aten.add.Tensor"


@pytest.mark.parametrize(
    ("product", "flops"),
    [
        (lambda: torch.mm(torch.ones(3, 5), torch.ones(5, 7)), 2 * 3 * 5 * 7),
        (lambda: torch.addmm(torch.ones(7), torch.ones(3, 5), torch.ones(5, 7)), 2 * 3 * 5 * 7),
        (lambda: torch.zeros(3, 7).addmm_(torch.ones(3, 5), torch.ones(5, 7)), 2 * 3 * 5 * 7),
        (lambda: torch.bmm(torch.ones(2, 3, 5), torch.ones(2, 5, 7)), 2 * 2 * 3 * 5 * 7),
        (lambda: torch.mv(torch.ones(3, 5), torch.ones(5)), 2 * 3 * 5),
        (lambda: torch.dot(torch.ones(5), torch.ones(5)), 2 * 5),
        (lambda: torch.nn.functional.linear(torch.ones(2, 3, 5), torch.ones(7, 5)), 2 * 2 * 3 * 5 * 7),
        (lambda: torch.ones(3, 5) + 1, 0),
    ],
    ids=["mm", "addmm", "addmm_", "bmm", "mv", "dot", "linear", "add"],
)
def test_flops_of_contractions(product: Callable[[], object], flops: int) -> None:
    with Calls() as calls:
        product()
    assert calls.flops() == flops


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_counts_whole_products(causal: bool) -> None:
    rows, heads, length, depth = 2, 3, 16, 8
    q, k, v = (torch.randn(rows, heads, length, depth, requires_grad=True) for _ in range(3))
    with Calls() as forward:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    product = 2 * rows * heads * length * length * depth
    assert "flash_attention_for_cpu" in "".join(str(call[0]) for call in forward.seen)
    assert forward.flops() == 2 * product
    with Calls() as backward:
        out.backward(torch.ones_like(out))
    assert backward.flops() == 5 * product


def test_views_are_told_from_copies() -> None:
    with Calls() as calls:
        x = torch.ones(4, 6)
        x.view(6, 4)
        x.t()
        x.detach()
        x.clone()
        x.add_(1)
        x.split(2)
    views = {
        operations.name_of(func): operations.is_view(
            func, operations.tensors_in((args, kwargs)), operations.tensors_in(result)
        )
        for func, args, kwargs, result in calls.seen
    }
    expected = {"aten.view": True, "aten.t": True, "aten.detach": True, "aten.split.Tensor": True}
    assert views == {"aten.ones": False, "aten.clone": False, "aten.add_.Tensor": False, **expected}


def test_bytes_are_arguments_and_results() -> None:
    left, right = torch.ones(3, 5), torch.ones(5, 7)
    assert operations.bytes_of(aten.mm.default, [left, right, left @ right]) == 4 * (15 + 35 + 21)
    assert operations.bytes_of(aten.sum.default, [torch.ones(1).expand(1000)]) == 4
    assert operations.bytes_of(aten.empty.memory_format, [torch.empty(1000)]) == 0


def test_dtype_is_the_one_computed_in() -> None:
    ids, table = torch.zeros(3, dtype=torch.int64), torch.zeros(4, 2, dtype=torch.bfloat16)
    assert operations.dtype_of([ids, table], [table[ids]]) == "bfloat16"
    assert operations.dtype_of([ids], [ids.float()]) == "float32"
    assert operations.dtype_of([ids], []) == "int64"
    assert operations.dtype_of([], []) == "none"
