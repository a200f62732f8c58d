"""torchao's AdamW with moments in 8 bits (arXiv:2110.02861), behind what a step and its checkpoints ask of it.

A moment is codes of 8 bits, a scale for every 256 of them, and a table; torchao keeps tensors of fewer than 4,096
numbers as they are. Three things differ from torch's optimizers. The learning rate must be a tensor. State is made of
several tensors, which are written apart and put together again. The update compiles itself, and stays compiled where a
step is only recorded, so that such a step is like any other to the last bit; a mode that would see every operator turns
compilation off, and under it the update runs as it is written.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode, is_traceable_wrapper_subclass

from assay.config import TrainingConfig
from assay.optimizers.groups import decay_groups
from assay.optimizers.quiet import importing_torchao
from assay.step.program import NamedParameters, OptimizerLike

_SIGNED = {"exp_avg": True, "exp_avg_sq": False}
_PARTS = ("codes", "scale", "qmap")


class EightBit:
    """An optimizer of torchao's; `join` makes a moment of its parts, and whether it has a sign."""

    def __init__(self, inner: OptimizerLike, join: Callable[..., Tensor]) -> None:
        self._inner, self._join = inner, join
        self.param_groups = inner.param_groups

    @property
    def state(self) -> Mapping[Any, Any]:
        """By parameter."""
        return self._inner.state

    def step(self) -> None:
        """Update every parameter, at the rate that was last written into its group."""
        for group in self.param_groups:
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32)
        with _as_written():
            self._inner.step()

    def state_dict(self) -> dict[str, Any]:
        """Torch's, every moment of 8 bits as its parts."""
        whole = self._inner.state_dict()
        return {**whole, "state": {index: _apart(entries) for index, entries in whole["state"].items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the parts together again."""
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
    """torchao's AdamW8bit as a recipe. Raises `ImportError` without torchao."""
    with importing_torchao():
        from torchao.optim import AdamW8bit
        from torchao.optim.subclass_8bit import OptimState8bit

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        inner = AdamW8bit(
            decay_groups(parameters, training.weight_decay),
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
            eps=training.epsilon,
        )
        return EightBit(inner, OptimState8bit)

    return recipe
