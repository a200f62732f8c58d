"""Modules and optimizers of a user's own as a `Step`, which the instruments expect.

The step itself stays a function that nothing here can divide. So the seams that would run its pieces refuse, and an
instrument learns of the update from the optimizers' hooks.

Modules and optimizers are found by watching the step: what it calls is what it trains. A hook on all modules tells
which are called from outside of any module, and a hook on all optimizers which make a step. Modules without parameters,
such as a loss, are left out. Optimizers that do not derive from torch's call no hook.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from assay.optimizers.bases import Joined
from assay.step.program import OptimizerLike, Parallel, Program, Step, Weights
from assay.training.gradients import not_synchronized

BY_HAND = "hand"
"""Name of the optimizer of a step that updates its weights itself."""


class _ByHand:
    """The optimizer of a step that updates its weights itself: it has no groups, and nothing is known of a state."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = []
        self.state: Mapping[Any, Any] = {}

    def step(self) -> NoReturn:
        """Refuse: the step does it."""
        _never()

    def state_dict(self) -> dict[str, Any]:
        """Return no state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Refuse: there is no state."""
        _never()


def step_of(modules: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> Step:
    """Return a step whose parts are `modules`. Its device is that of their first parameter.

    Without optimizers it is a step that updates its weights itself.
    """
    joined: OptimizerLike = Joined(optimizers) if optimizers else _ByHand()
    optimizer: OptimizerLike = optimizers[0] if len(optimizers) == 1 else joined
    names = {id(one): name for module in modules for name, one in module.named_parameters()}
    updated = [one for group in optimizer.param_groups for one in group["params"]]
    named = [(names.get(id(one), f"parameter {place}"), one) for place, one in enumerate(updated)]
    program = Program(
        device=next(one.device for module in modules for one in module.parameters()),
        parts=tuple(modules),
        weights=Weights(initialize=_never, tied=()),
        parallel=Parallel(reduce_loss=lambda loss: loss, synchronize=not_synchronized),
        batches=_never,
        encode=_never,
        schedule=lambda index: float(optimizer.param_groups[0]["lr"]) if optimizer.param_groups else math.nan,
        gradients=_never,
        gradient_norm=_never,
        optimizer=_never,
        update=_never,
        evaluate=_never,
    )
    return Step(program, optimizer, named)


def compiled_frames() -> int:
    """Number of functions that `torch.compile` has compiled in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(utils.counters["frames"]["ok"])


def is_compiled(modules: Sequence[nn.Module]) -> bool:
    """True if `torch.compile` made one of the modules."""
    every = [one for module in modules for one in module.modules()]
    return any(
        isinstance(one, torch._dynamo.OptimizedModule) or getattr(one, "_compiled_call_impl", None) for one in every
    )


def _never(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("a step of a user's own has no such piece: it runs as a whole")


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
