"""What `eight_bit` relies on of torchao, and no more: moments made of parts, and a rate that must be a tensor.

Moments are evenly spaced in a block, without torchao's table: it stands in for its shapes, not for its numbers.
"""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

_BLOCK = 256


class OptimState8bit(Tensor):
    codes: Tensor
    scale: Tensor
    qmap: Tensor

    @staticmethod
    def __new__(
        cls: Any, codes: Tensor, scale: Tensor, qmap: Tensor, signed: bool, dtype: Any = None
    ) -> "OptimState8bit":
        return Tensor._make_wrapper_subclass(cls, codes.shape, dtype=dtype)  # type: ignore[attr-defined,no-any-return]

    def __init__(self, codes: Tensor, scale: Tensor, qmap: Tensor, signed: bool, dtype: Any = None) -> None:
        self.codes, self.scale, self.qmap, self.signed = codes, scale, qmap, signed

    def __tensor_flatten__(self) -> Any:
        return ["codes", "scale", "qmap"], [self.signed, self.dtype]

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, about: Any, *_: Any) -> "OptimState8bit":
        return cls(parts["codes"], parts["scale"], parts["qmap"], *about)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default:
            return args[0]
        raise NotImplementedError(str(func))

    def read(self) -> Tensor:
        return ((self.codes.float() - 128) * self.scale.repeat_interleave(_BLOCK).view(self.shape)).float()

    def write(self, wide: Tensor) -> None:
        blocks = wide.reshape(-1, _BLOCK)
        self.scale.copy_(blocks.abs().amax(1) / 127 + 1e-30)
        self.codes.copy_((blocks / self.scale[:, None]).round().add(128).view(self.shape))


class AdamW8bit(Optimizer):
    def __init__(self, groups: Any, lr: float, betas: Any, eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            if not isinstance(group["lr"], Tensor):
                raise RuntimeError("lr was changed to a non-Tensor object")
            for parameter in group["params"]:
                self._update(parameter, group)

    def _update(self, parameter: Tensor, group: Any) -> None:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if not state:
            state.update(step=torch.tensor(0.0), exp_avg=_zeros(parameter, True), exp_avg_sq=_zeros(parameter, False))
        state["step"] += 1
        wide = []
        for name, beta, new in zip(
            ("exp_avg", "exp_avg_sq"), group["betas"], (gradient, gradient.square()), strict=True
        ):
            kept = state[name]
            one = (kept.read() if isinstance(kept, OptimState8bit) else kept).lerp(new, 1 - beta)
            kept.write(one) if isinstance(kept, OptimState8bit) else kept.copy_(one)
            wide.append(one / (1 - beta ** state["step"]))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(group["lr"] * wide[0] / (wide[1].sqrt() + group["eps"]))


def _zeros(parameter: Tensor, signed: bool) -> Tensor:
    if parameter.numel() < 4096 or parameter.numel() % _BLOCK:
        return torch.zeros_like(parameter)
    codes = torch.full(parameter.shape, 128, dtype=torch.uint8)
    return OptimState8bit(codes, torch.zeros(codes.numel() // _BLOCK), torch.zeros(256), signed, torch.float32)


def install(patch: pytest.MonkeyPatch) -> None:
    """Be torchao for a test."""
    names = ("torchao", "torchao.optim", "torchao.optim.subclass_8bit")
    modules = {name: ModuleType(name) for name in names}
    modules[names[1]].AdamW8bit = AdamW8bit  # type: ignore[attr-defined]
    modules[names[2]].OptimState8bit = OptimState8bit  # type: ignore[attr-defined]
    for name, module in modules.items():
        patch.setitem(sys.modules, name, module)
