"""Operators that are one kernel on CUDA, and several on a CPU build of torch, which lacks that kernel.

torch's dispatcher gets a definition that makes the results of the kernel, without values, and the tensors that it saves
for backward. A CUDA build has the kernel and its own rule of autograd, so it keeps them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

from assay.cost.gpu_kernels import norm_backward
from assay.cost.kernels import Gpu


class FusedRmsNorm(torch.autograd.Function):
    """RMSNorm as CUDA's kernel: it saves its input, its weight, and one number for each row.

    Rows that are apart are copied first, also in backward. Source: `aten/src/ATen/native/cuda/layer_norm_kernel.cu`,
    `_fused_rms_norm_cuda`, and `_fused_rms_norm` of `derivatives.yaml`. Rows: ``llama-3.2-1b``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: Sequence[int], weight: Tensor | None, gpu: Gpu) -> tuple[Tensor, Tensor]:
        """Return the normalized rows `[…, shape]`, and a float32 for each row."""
        _copied = x.contiguous()
        rows = [*x.shape[: x.dim() - len(shape)], *(1 for _ in shape)]
        result = torch.empty_like(x, memory_format=torch.contiguous_format)
        inverse = x.new_empty(rows, dtype=torch.promote_types(x.dtype, torch.float32))
        ctx.save_for_backward(x, weight, inverse)
        ctx.mark_non_differentiable(inverse)
        ctx.gpu = gpu
        return result, inverse

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, Tensor | None, None]:
        """Return the gradients of input and weight."""
        x, weight, _inverse = ctx.saved_tensors
        _copied = x.contiguous(), gradient.contiguous()
        results = torch.empty_like(x), None, None if weight is None else torch.empty_like(weight), None
        if weight is not None:
            width = weight.numel()
            x.new_empty(norm_backward(x.numel() // width, width, x.dtype.itemsize, 1, ctx.gpu), dtype=torch.uint8)
        return results


_COMPOSED = ("silu_backward", "mish_backward")
"""Backwards of activation functions: one kernel on CUDA, and where no kernel is known, a row of other operators.

Source: `aten/src/ATen/native/native_functions.yaml`, where they are both `CUDA` and `CompositeImplicitAutograd`.
"""


def add_kernels(gpu: Gpu) -> Library | None:
    """Define the kernels for tensors on CUDA; return what keeps them. None: this torch has them."""
    if torch._C._dispatch_has_kernel_for_dispatch_key("aten::_fused_rms_norm", "CUDA"):
        return None
    library = Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    library.impl("_fused_rms_norm", partial(_normalized, gpu), "AutogradCUDA")  # type: ignore[no-untyped-call]
    for name in _COMPOSED:
        library.impl(name, _like_gradient, "CUDA")  # type: ignore[no-untyped-call]
    return library


def _like_gradient(gradient: Tensor, _x: Tensor) -> Tensor:
    return torch.empty_like(gradient)


def _normalized(gpu: Gpu, x: Tensor, shape: Sequence[int], weight: Tensor | None, _epsilon: float | None) -> Any:
    return FusedRmsNorm.apply(x, shape, weight, gpu)  # type: ignore[no-untyped-call]
