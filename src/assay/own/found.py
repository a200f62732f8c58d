"""Modules and optimizers of a step of a user's own, found by watching it: what it calls is what it trains.

A hook on all modules tells which are called from outside of any module, and a hook on all optimizers which make a step.
Modules without parameters, such as a loss, are left out. Optimizers that do not derive from torch's call no hook.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook


@dataclass
class Found:
    """Modules that were called from outside of any module, and optimizers that stepped, in the order of their calls."""

    modules: list[nn.Module] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)


@contextmanager
def finding() -> Iterator[Found]:
    """Context of one step or several; what they call is found."""
    found, depth = Found(), [0]

    def enter(module: nn.Module, _: Any) -> None:
        depth[0] += 1
        # Recomputation in backward calls a part of a module that is known.
        known = depth[0] > 1 or any(module is part for one in found.modules for part in one.modules())
        if not known and any(True for _ in module.parameters()):
            found.modules.append(module)

    def leave(*_: Any) -> None:
        depth[0] -= 1

    def stepping(optimizer: Optimizer, *_: Any) -> None:
        if optimizer not in found.optimizers:
            found.optimizers.append(optimizer)

    with ExitStack() as hooks:
        for handle in (
            register_module_forward_pre_hook(enter),
            register_module_forward_hook(leave, always_call=True),
            register_optimizer_step_pre_hook(stepping),
        ):
            hooks.callback(handle.remove)
        yield found
