"""The module to which an operator belongs, in forward, backward and recomputation.

A forward operator belongs to the innermost module whose forward is running. A backward operator belongs to the module
whose forward created its autograd node. Nodes have sequence numbers, and the latest number is known while a forward
operator runs. The accumulation of a gradient belongs to the module that owns the weight. A recomputed operator belongs
to the innermost module that the recomputation calls, or else to the checkpointed module. That module is found from the
node that triggers the recomputation, which is inside it.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import nn

from assay.instruments.phase import current_phase
from assay.records.anatomy import BETWEEN, UPDATE
from assay.records.trace import Phase
from assay.step.checkpoint import is_repeated


class Owners:
    """Tracks the module to which the running operator belongs."""

    def __init__(self) -> None:
        self.updating = 0
        """Number of nested updates that are running."""
        self._running: list[str] = []
        self._of_node: dict[int, str] = {}
        self._of_weight: dict[int, str] = {}
        self._repeated: set[str] = set()
        """Names of the checkpointed modules."""

    def follow(self, parts: Iterable[nn.Module]) -> Iterable[Any]:
        """Hook every module, and yield the handles."""
        for part in parts:
            for name, module in part.named_modules():
                if is_repeated(module):
                    self._repeated.add(name)
                yield module.register_forward_pre_hook(partial(self._enter, name))
                yield module.register_forward_hook(self._leave, always_call=True)
                for weight in module.parameters(recurse=False):
                    self._of_weight.setdefault(id(weight), name)

    def now(self) -> tuple[str, Phase]:
        """Return (module, phase) of the operator that is about to run."""
        phase = current_phase(updating=self.updating > 0)
        if phase == "update":
            return UPDATE, phase
        if phase == "forward":
            return self._of_forward(), phase
        node = torch._C._current_autograd_node()
        if phase == "recompute":
            return self._of_forward(self._repeated_around(node)), phase
        weight = getattr(node, "variable", None)
        if weight is not None:
            return self._of_weight.get(id(weight), BETWEEN), phase
        return self._of_node.get(node._sequence_nr(), BETWEEN), phase

    def _repeated_around(self, node: Any) -> str:
        """The checkpointed module that contains a backward node, or `BETWEEN` if there is none."""
        name = self._of_node.get(node._sequence_nr(), "")
        while name and name not in self._repeated:
            name = name.rpartition(".")[0]
        return name or BETWEEN

    def _of_forward(self, outside: str = BETWEEN) -> str:
        """The module whose forward is running, else `outside`.

        The newest autograd node is attributed to it, unless the node already has a module.
        """
        module = self._running[-1] if self._running else outside
        self._of_node.setdefault(torch._C._autograd._get_sequence_nr() - 1, module)
        return module

    def _enter(self, name: str, module: nn.Module, args: Any) -> None:
        self._running.append(name or BETWEEN)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._running.pop()
