"""Activation norms of the first and the last block, from hooks that cost next to nothing.

A hook reduces its block's output to one number, with no copy and no host read; the numbers of a step's micro-batches
are squared, summed and rooted when the step is over, so cutting the batch does not change the norm. Forwards of an
evaluation do not count, nor does a block that is run again in backward: there, autograd's engine is at work.
"""

from typing import Any

import torch
from torch import Tensor, nn

from assay.model import Block
from assay.step.program import Step


class ActivationNorms:
    """Watches a step's first and last block until `remove()`."""

    def __init__(self, step: Step) -> None:
        blocks = step.modules_of(Block)
        self._watched = [blocks[0], blocks[-1]] if blocks else []
        self._norms: dict[nn.Module, list[Tensor]] = {block: [] for block in self._watched}
        self._handles = [block.register_forward_hook(self._note) for block in self._norms]

    def _note(self, block: nn.Module, args: Any, output: Tensor) -> None:
        if block.training and torch._C._current_graph_task_id() == -1:
            dtype = torch.promote_types(output.dtype, torch.float32)
            self._norms[block].append(torch.linalg.vector_norm(output.detach(), dtype=dtype))

    def take(self) -> list[Tensor]:
        """Norms [first, last] since the last call, over all micro-batches, as scalars on the device."""
        noted = [self._norms[block] for block in self._watched]
        norms = [one[0] if len(one) == 1 else torch.linalg.vector_norm(torch.stack(one)) for one in noted if one]
        for one in self._norms.values():
            one.clear()
        return norms

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
