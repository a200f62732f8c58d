"""Update of tensors that stand in for the weights: copies in host memory, or shards.

`Program.optimized` makes these tensors, one for each weight. Gradients are passed to them before the optimizer's step,
and their values are passed back after it. The rest of an update (unscaling, norm, clipping) is that of the weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assay.step.program import Step

Update = Callable[[Step], Tensor]
Pairs = Sequence[tuple[Tensor, Tensor]]
"""(weight, tensor that the optimizer updates in its place); weights that it updates themselves are not listed."""
Transfer = Callable[[Step, Pairs], None]


def update_in_place_of(inner: Update, before: Transfer, after: Transfer) -> Update:
    """Return the update `inner` with a transfer before the optimizer's step, and one after it."""

    def update(step: Step) -> Tensor:
        both = zip(step.named_parameters(), step.optimized, strict=True)
        pairs = [(weight, other) for (_, weight), (_, other) in both if weight is not other]
        return inner(replace(step, optimizer=_Transferring(step, pairs, before, after)))

    return update


class _Transferring:
    """Optimizer of a step whose own step is enclosed by the transfers."""

    def __init__(self, step: Step, pairs: Pairs, before: Transfer, after: Transfer) -> None:
        inner = step.optimizer
        self.param_groups = inner.param_groups
        self.state = inner.state
        self.state_dict = inner.state_dict
        self.load_state_dict = inner.load_state_dict
        self._step, self._pairs, self._before, self._after = step, pairs, before, after

    @torch.no_grad()
    def step(self) -> None:
        self._before(self._step, self._pairs)
        self._step.optimizer.step()
        self._after(self._step, self._pairs)
