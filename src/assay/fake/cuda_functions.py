"""Functions and operators of torch on CUDA, for the GPU that is not there; and moves of fake parameters.

Functions that ask CUDA's runtime are answered. Some operators are one kernel on CUDA, and several on a CPU build of
torch, which lacks that kernel. The dispatcher gets a definition that makes the results of the kernel, without
values, and the tensors that it saves for backward. A CUDA build has the kernel and its own rule of autograd, so it
keeps them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo  # or its first use would find the functions replaced, and refuse them
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch.library import Library

from assay.absent.gpus import AbsentDevice
from assay.cost.gpu_kernels import norm_backward
from assay.cost.kernels import Gpu
from assay.errors import UsageError
from assay.fake.known_values import deep_copy, place_now


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
        ctx.set_materialize_grads(False)  # torch's node makes no zeros for the number that has no gradient
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


@contextmanager
def stand_ins(device: AbsentDevice) -> Iterator[None]:
    """Context in which `torch.cuda` answers for a device, and modules move their fake parameters."""
    with ExitStack() as replaced:
        for name, function in _answers(device).items():
            replaced.enter_context(patch.object(torch.cuda, name, function))
        # It would make a real tensor on a device that is said to be there.
        replaced.enter_context(patch.object(fake_tensor, "init_gpu_context", _nothing))
        replaced.enter_context(as_if_real())
        replaced.enter_context(patch.object(Tensor, "pin_memory", lambda tensor, *_: tensor))
        yield


@contextmanager
def as_if_real() -> Iterator[None]:
    """Context in which modules move and copy their fake parameters, and libraries take the ways of real tensors."""
    with (
        # transformers looks for fake tensors, and would make a mask that it leaves out of a training.
        patch.object(torch._subclasses, "FakeTensor", _NoFakeTensor),
        patch.object(nn.Module, "_apply", apply_anew),
        patch.object(fake_tensor.FakeTensor, "__deepcopy__", deep_copy),
    ):
        yield


def _answers(device: AbsentDevice) -> dict[str, Callable[..., Any]]:
    """Return the functions of `torch.cuda` that models and loops of training ask."""
    limits = device.limits
    properties = SimpleNamespace(
        name=device.name,
        major=device.capability[0],
        minor=device.capability[1],
        total_memory=device.visible_bytes,
        multi_processor_count=device.multiprocessors,
        max_threads_per_multi_processor=limits.threads,
        L2_cache_size=device.l2_bytes,
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: False,  # torch would save the state of a generator that is not there
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _nothing,
        "get_device_name": lambda *_: device.name,
        "get_device_capability": lambda *_: device.capability,
        "get_device_properties": lambda *_: properties,
        "is_bf16_supported": lambda *_, **__: device.capability >= (8, 0),
        "is_current_stream_capturing": lambda: False,
        "current_stream": lambda *_: _OnlyStream(),
        "Stream": _SecondStream,
        "Event": _Event,
        "synchronize": _nothing,
        "empty_cache": _nothing,
        "manual_seed": _nothing,
        "manual_seed_all": _nothing,
        "reset_peak_memory_stats": _nothing,
    }


class _NoFakeTensor:
    """A class without objects."""


class _OnlyStream:
    """The one stream, on which all is complete at once."""

    def synchronize(self) -> None:
        """Return at once."""

    wait_stream = wait_event = lambda self, _: None

    def record_event(self, event: "_Event | None" = None) -> "_Event":
        """Return an event, which is complete."""
        return event or _Event()


class _Event:
    """An event, which is complete at once; no time means anything."""

    def __init__(self, **_: Any) -> None:
        pass

    record = wait = synchronize = lambda self, *_: None

    def query(self) -> bool:
        """Return True."""
        return True

    def elapsed_time(self, _: "_Event") -> float:
        """Return NaN."""
        return math.nan


class _SecondStream:
    """A second stream, which stops the trace."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise UsageError(
            f"{place_now()} makes a second stream; how long blocks wait for it depends on time, so a trace cannot tell "
            "the peak. Leave it out, or measure the step"
        )


def _nothing(*_: Any, **__: Any) -> None:
    """Return at once: all is complete, and nothing is kept."""


def apply_anew(module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """Apply a function to all parameters, their gradients and buffers, as `nn.Module._apply` does.

    torch replaces the data of a parameter, which a fake one of another device refuses. Here it becomes another
    parameter, and all modules that share it get the same one.
    """
    moved: dict[int, tuple[Tensor, Tensor | None]] = {}  # the key's tensor lives in the value, so no id comes twice

    def once(tensor: Tensor | None) -> Tensor | None:
        if tensor is None:
            return None
        if id(tensor) not in moved:
            moved[id(tensor)] = tensor, _moved(tensor, fn)
        return moved[id(tensor)][1]

    for one in module.modules() if recurse else (module,):
        for name, parameter in one._parameters.items():
            one._parameters[name] = once(parameter)  # type: ignore[assignment]
        for name, buffer in one._buffers.items():
            one._buffers[name] = once(buffer)
    return module


def _moved(tensor: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a tensor after `fn`; a parameter stays one, with its gradient. It is itself if nothing changes."""
    with torch.no_grad():
        made = fn(tensor)
    if made is tensor or not isinstance(tensor, nn.Parameter):
        return made
    parameter = nn.Parameter(made, tensor.requires_grad)
    if tensor.grad is not None:
        parameter.grad = fn(tensor.grad)
    return parameter
