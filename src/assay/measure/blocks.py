"""What the forward of each block was: what a proof of recomputation holds against that which ran again in backward.

Hooks on a block tell when its forward begins and ends, also where it is compiled or checkpointed, which both exchange
what it calls. What runs again passes no hook of the block, and is known by its phase alone.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from assay.model import Block
from assay.step.trace import BlockForward, OperationClass, Phase

_OF_A_CHECKPOINT = "_recomputation_hook"
"""Torch's name for what receives the tensors that a second forward saves."""


def runs_again() -> bool:
    """Inside the autograd engine: whether a checkpoint repeats its forward.

    Nothing else enables gradients there. An autograd function that it calls disables them again, and then it is told by
    who receives what is saved.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return torch.is_grad_enabled() or (hooks is not None and _OF_A_CHECKPOINT in getattr(hooks[0], "__qualname__", ""))


@dataclass
class _Forward:
    """Of one block, so far."""

    contractions: int = 0
    flops: int = 0
    last_contractions: int = 0
    last_flops: int = 0
    normalizations: int = 0


class BlockForwards:
    """The forwards of the blocks among some modules, as they run inside `watched`."""

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        named = (item for part in parts for item in part.named_modules() if isinstance(item[1], Block))
        self._blocks = {module: int(name.rpartition(".")[2]) for name, module in named}
        self._found: dict[int, _Forward] = {}
        self._now: _Forward | None = None
        self._last: int | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Learn from the blocks when each of them begins and ends."""
        with ExitStack() as hooks:
            for module in self._blocks:
                for handle in (
                    module.register_forward_pre_hook(self._begin, prepend=True),
                    module.register_forward_hook(self._end, prepend=True),  # before a probe reads the output
                ):
                    hooks.callback(handle.remove)
            yield

    def note(self, phase: Phase, kind: OperationClass, flops: int) -> None:
        """An operator has run."""
        if self._now is None or phase != "forward":
            return
        if kind == "contraction":
            self._now.contractions += 1
            self._now.flops += flops
            self._last = flops
        self._now.normalizations += kind == "normalization"

    def forwards(self) -> tuple[BlockForward, ...]:
        """Of each block that ran, in the order of the model."""
        return tuple(BlockForward(block=block, **vars(found)) for block, found in sorted(self._found.items()))

    def _begin(self, module: nn.Module, *_: object) -> None:
        self._now, self._last = self._found.setdefault(self._blocks[module], _Forward()), None

    def _end(self, *_: object) -> None:
        if self._now is not None and self._last is not None:
            self._now.last_contractions += 1
            self._now.last_flops += self._last
        self._now = None
