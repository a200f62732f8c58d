"""Memory of a step on CUDA: its storages on fake tensors, and what libraries and kernels take beside them.

Each rule has its source in torch 2.11. Rows of ``benchmarks/data/h200_peaks.jsonl`` show each of them on a GPU.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload

from assay.absent.gpus import AbsentDevice
from assay.cost import gpu_kernels
from assay.cost.gpu_kernels import cublas_workspace, cublaslt_workspace
from assay.cost.kernels import Gpu
from assay.cost.reductions import Reduction, inside_bytes
from assay.fake.known_values import is_engine
from assay.instruments import operations
from assay.instruments.memory.storage_ledger import Owners, StorageLedger
from assay.instruments.phase import current_phase
from assay.model.backward import in_backward

aten = torch.ops.aten

WORKSPACES = "workspaces of cuBLAS"
"""Part of a peak that is no tensor's."""

_PRODUCTS = {
    *(aten.mm.default, aten.mm.out, aten.bmm.default, aten.bmm.out, aten.addmm.default, aten.addmm.out),
    *(aten.baddbmm.default, aten.baddbmm.out, aten.addmm_.default, aten.baddbmm_.default),
    *(aten.mv.default, aten.addmv.default, aten.dot.default, aten.vdot.default),
}
"""Operators whose CUDA kernel takes a handle of cuBLAS: `aten/src/ATen/native/cuda/Blas.cpp`."""


def uses_cublaslt(func: OpOverload, args: tuple[Any, ...]) -> bool:
    """True for a product with a bias that cuBLASLt adds: one row, contiguous, for a matrix with more than one column.

    Source: `aten/src/ATen/native/cuda/Blas.cpp`, `isInputCompliesAddmmCudaLt`. Rows: as of `cublaslt_workspace`.
    """
    if func is not aten.addmm.default:
        return False
    bias, first, second = args[:3]
    if bias.dim() != 1 or bias.size(0) != second.size(1) or not bias.is_contiguous():
        return False
    return first.dtype is not torch.float64 and all(size > 1 for size in second.shape)


def softmax_backward_bytes(func: OpOverload, args: tuple[Any, ...]) -> int:
    """Return the bytes of gradient × output, which softmax's backward makes inside and frees; 0 for other operators.

    Source: `aten/src/ATen/native/cuda/SoftMax.cu`, `softmax_backward_cuda_out`. Row: ``shakespeare-char`` with
    ``activation_checkpointing``.
    """
    if func is not aten._softmax_backward_data.default:
        return 0
    gradient, output = args[:2]
    return int(gradient.numel()) * torch.promote_types(gradient.dtype, output.dtype).itemsize


_SUMS = {aten.sum.default: 1, aten.sum.dim_IntList: 1, aten.mean.default: 1, aten.mean.dim: 1}
"""Position of the dimensions among the arguments of each sum."""
_SUMS[aten.linalg_vector_norm.default] = 2


def reduction_bytes(func: OpOverload, args: tuple[Any, ...], dtype: torch.dtype, gpu: Gpu) -> int:
    """Return the bytes that a sum or mean with a result of `dtype` takes inside and frees; 0 for other operators.

    They are those of `reductions`, and a copy of an input that is not of the result's type; 16-bit inputs are not
    copied for a result in float32. Source: `aten/src/ATen/native/ReduceOpsUtils.h`, `make_reduction`.
    """
    if func not in _SUMS or not args[0].dim():
        return 0
    place = _SUMS[func]
    x, dims = args[0], args[place] if len(args) > place and args[place] else ()
    half = x.dtype in (torch.float16, torch.bfloat16)
    copied = x.dtype is not dtype and not (half and dtype is torch.float32)
    strides = torch._prims_common.make_contiguous_strides_for(x.shape) if copied else x.stride()
    itemsize = max(dtype.itemsize, 4) if dtype.is_floating_point else dtype.itemsize
    summed = Reduction(x.shape, strides, dims, itemsize, 0 if copied else x.storage_offset())
    return inside_bytes(summed, gpu) + (x.numel() * dtype.itemsize if copied else 0)


def kernel_bytes(func: OpOverload, args: tuple[Any, ...], gpu: Gpu) -> int:
    """Return the bytes that kernels of attention, norms, embeddings and lists take inside and free (`gpu_kernels`)."""
    if func in _ATTENTION:
        kind, query = _ATTENTION[func]
        x = args[query]
        heads, length, depth = x.shape[0] * x.shape[1], x.shape[2], x.shape[3]
        if kind is gpu_kernels.flash_forward:
            return gpu_kernels.flash_forward(heads, length, depth, gpu, noise=len(args) > 3 and args[3] > 0)
        if kind is gpu_kernels.efficient_backward:
            return gpu_kernels.efficient_backward(heads, length, depth, x.dtype.itemsize)
        return kind(heads, length, depth)
    if func is aten.native_layer_norm_backward.default:
        x, width = args[1], args[2][-1]
        parameters = sum(one is not None for one in args[5:7])
        return gpu_kernels.norm_backward(x.numel() // width, width, x.dtype.itemsize, parameters, gpu)
    if func is aten.embedding_dense_backward.default:
        return gpu_kernels.embedding_backward(args[1].numel(), args[2], args[0].shape[-1])
    if func is aten._safe_softmax.default:
        return gpu_kernels.safe_softmax(args[0].numel(), args[0].shape[args[1]])
    if func is aten._grouped_mm.default and len(args) > 2:
        return gpu_kernels.grouped_product(args[2].numel(), gpu)
    if func is aten._foreach_norm.Scalar:
        return gpu_kernels.norms_of_list(one.numel() for one in args[0])
    return 0


def host_results(func: OpOverload, result: Any) -> tuple[torch.Tensor, ...]:
    """Return results that CUDA's kernel has on the host: seed and offset of the memory-efficient kernel of attention.

    Source: `aten/src/ATen/native/transformers/cuda/attention.cu`, `_efficient_attention_forward`. Rows:
    ``sdpa_attention:backend=efficient``, 16 bytes a layer.
    """
    efficient = func is aten._scaled_dot_product_efficient_attention.default
    return (result[2], result[3]) if efficient else ()


_ATTENTION: dict[OpOverload, tuple[Callable[..., int], int]] = {
    aten._scaled_dot_product_flash_attention.default: (gpu_kernels.flash_forward, 0),
    aten._scaled_dot_product_flash_attention_backward.default: (gpu_kernels.flash_backward, 1),
    aten._scaled_dot_product_efficient_attention_backward.default: (gpu_kernels.efficient_backward, 1),
    aten._scaled_dot_product_cudnn_attention_backward.default: (gpu_kernels.cudnn_backward, 1),
}
"""Function of the bytes that a kernel of attention takes, and position of the queries among its arguments."""

_UNSHARED = (4, 2)
"""References to a fake tensor and to its storage, in a dispatch mode, if only the engine of autograd holds it."""


def accumulates_in_place(func: OpOverload, args: tuple[Any, ...]) -> bool:
    """True if autograd's engine adds a second gradient to a first one that nobody else holds.

    The engine does so in the memory of the first, except with subclasses of tensors, of which fake ones are some.
    Source: `torch/csrc/autograd/input_buffer.cpp`, `can_accumulate_inplace`. Row: ``mamba bf16``.
    """
    if func is not aten.add.Tensor or not in_backward() or torch.is_grad_enabled():
        return False
    first = args[0]
    held = (first._use_count(), torch._C._storage_Use_Count(first.untyped_storage()._cdata))
    return held == _UNSHARED and is_engine()


KERNELS = {
    aten._scaled_dot_product_flash_attention.default: "flash",
    aten._scaled_dot_product_efficient_attention.default: "memory-efficient",
    aten._scaled_dot_product_cudnn_attention.default: "cuDNN",
    aten._fused_rms_norm.default: "RMSNorm",
}
"""Names of fused kernels by their operator."""
_UNKNOWN = {
    aten.convolution.default: "cuDNN's convolutions",
    aten.convolution_backward.default: "cuDNN's convolutions",
    aten.cudnn_convolution.default: "cuDNN's convolutions",
}
"""Libraries whose workspaces are not known, by operator."""


class CudaLedger(StorageLedger):  # type: ignore[no-untyped-call]
    """Ledger of the storages of a CUDA step, with workspaces and with what kernels take inside."""

    def __init__(self, device: AbsentDevice) -> None:
        super().__init__("cuda")
        self._gpu = device.gpu
        self._cublas_bytes = cublas_workspace(device.capability)
        self._taken: set[tuple[str, str]] = set()
        self.kernels: Counter[str] = Counter()
        self.unknown: dict[str, None] = {}

    def begin(self, modules: Iterable[torch.nn.Module], owners: Owners, tensors: Iterable[torch.Tensor] = ()) -> None:
        """Begin the step without workspaces, as a measurement does after `torch._C._cuda_clearCublasWorkspaces`."""
        self._taken.clear()
        self.kernels.clear()
        super().begin(modules, owners, tensors)

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not any(one.device.type == "cuda" for one in operations.tensors_in(args[:2])):
            return super().__torch_dispatch__(func, types, args, kwargs)
        self._name(func)
        if accumulates_in_place(func, args):
            self.hand_over(args[0])
        phase = current_phase(updating=False)
        inside = self.take(softmax_backward_bytes(func, args) + kernel_bytes(func, args, self._gpu), phase)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.give_back(inside)
        if func in _SUMS:
            self.give_back(self.take(reduction_bytes(func, args, result.dtype, self._gpu), phase))
        self.leave_out(host_results(func, result))
        for nbytes in self._workspaces(func, args):
            self.take(nbytes, WORKSPACES)
        return result

    def _name(self, func: OpOverload) -> None:
        """Note a fused kernel, or a library that is not known."""
        if func in KERNELS:
            self.kernels[KERNELS[func]] += 1
        if func in _UNKNOWN:
            self.unknown[_UNKNOWN[func]] = None

    def _workspaces(self, func: OpOverload, args: tuple[Any, ...]) -> Iterator[int]:
        """Yield the bytes that a thread takes at its first product, the caller's or autograd's, and keeps."""
        if func not in _PRODUCTS:
            return
        thread = "autograd" if in_backward() else "caller"
        wanted = [("cublas", self._cublas_bytes)]
        if uses_cublaslt(func, args):
            wanted.append(("cublaslt", cublaslt_workspace()))
        for library, nbytes in wanted:
            if (thread, library) not in self._taken:
                self._taken.add((thread, library))
                yield nbytes
