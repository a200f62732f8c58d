"""torchao's AdamW with moments in 8 bits (arXiv:2110.02861), adapted to a step and its checkpoints.

A moment consists of 8-bit codes, a scale for every 256 of them, and a table. Moments of fewer than 4,096 elements stay
as they are. There are three differences from torch's optimizers. The learning rate must be a tensor. A moment consists
of several tensors, which checkpoints store separately. The update compiles itself. It stays compiled while a step is
only recorded, so that such a step is bit-equal to any other. A dispatch mode that must see every operator turns
compilation off; under it the update runs eagerly.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import (
    _disable_current_modes,
    _get_current_dispatch_mode,
    is_traceable_wrapper_subclass,
)

from assay.config import TrainingConfig
from assay.optimizers.quiet import importing_torchao
from assay.optimizers.recipes import decay_groups
from assay.step.program import NamedParameters, OptimizerLike

_SIGNED = {"exp_avg": True, "exp_avg_sq": False}
_PARTS = ("codes", "scale", "qmap")


class EightBit:
    """Wrapper of a torchao optimizer; `join(codes, scale, qmap, signed, dtype)` builds a moment from its parts."""

    def __init__(self, inner: OptimizerLike, join: Callable[..., Tensor]) -> None:
        self._inner, self._join = inner, join
        self.param_groups = inner.param_groups

    @property
    def state(self) -> Mapping[Any, Any]:
        """State by parameter."""
        return self._inner.state

    def step(self) -> None:
        """Update every parameter, at the learning rate last written into its group."""
        for group in self.param_groups:
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32)
        with _as_written():
            self._inner.step()

    def state_dict(self) -> dict[str, Any]:
        """Return torch's state dict, with each 8-bit moment split into its parts."""
        whole = self._inner.state_dict()
        return {**whole, "state": {index: _apart(entries) for index, entries in whole["state"].items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Join the parts of each moment, and load the state."""
        whole = {index: self._together(entries) for index, entries in state["state"].items()}
        self._inner.load_state_dict({**state, "state": whole})
        self.param_groups = self._inner.param_groups

    def _together(self, entries: Mapping[str, Tensor]) -> dict[str, Tensor]:
        joined = {name: one for name, one in entries.items() if not name.endswith(_PARTS)}
        for name, signed in _SIGNED.items():
            if name not in joined:
                joined[name] = self._join(*(entries[f"{name}_{part}"] for part in _PARTS), signed, torch.float32)
        return joined


def _apart(entries: Mapping[str, Tensor]) -> dict[str, Tensor]:
    parts: dict[str, Tensor] = {}
    for name, one in entries.items():
        if is_traceable_wrapper_subclass(one):
            parts |= {f"{name}_{part}": getattr(one, part) for part in _PARTS}
        else:
            parts[name] = one
    return parts


def _as_written() -> AbstractContextManager[Any]:
    mode = _get_current_dispatch_mode()
    compiles = mode is None or mode.is_infra_mode()
    return nullcontext() if compiles else torch.compiler.set_stance("force_eager")


def adamw_8bit(training: TrainingConfig) -> Callable[[NamedParameters], OptimizerLike]:
    """Return torchao's AdamW8bit as a recipe. Raises `ImportError` without torchao."""
    with importing_torchao():
        from torchao.optim import AdamW8bit
        from torchao.optim.subclass_8bit import OptimState8bit, get_qmap_signed, get_qmap_unsigned

    with _disable_current_modes():  # torchao keeps these tables, and reads them: a trace of fake tensors has no values
        get_qmap_signed()
        get_qmap_unsigned()

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        inner = AdamW8bit(
            decay_groups(parameters, training.weight_decay),
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
            eps=training.epsilon,
        )
        return EightBit(inner, OptimState8bit)

    return recipe
