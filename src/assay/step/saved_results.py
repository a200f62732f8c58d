"""Results kept from a module's forward for its recomputation, outside of autograd's saved tensors.

At each operator of the forward, torch's selective checkpointing (`create_selective_checkpoint_contexts`) calls a policy
that decides whether to keep the result. Recomputation then uses it instead of computing it. Hooks on saved tensors do
not see such results, so the policy itself reports them to an instrument.
"""

from collections.abc import Callable, Iterable
from typing import Any

from torch._ops import OpOverload
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext


class Keeper:
    """Witness of tensors kept for backward that hooks on saved tensors do not see."""

    watcher: Callable[[Any], None] | None = None
    """Receives each tensor that is kept."""


class ResultsKept(Keeper):
    """Checkpoint policy that keeps the results of the given operators."""

    def __init__(self, operators: Iterable[OpOverload]) -> None:
        self.operators = frozenset(operators)

    def __call__(
        self, context: SelectiveCheckpointContext, operator: OpOverload, *args: Any, **kwargs: Any
    ) -> CheckpointPolicy:
        if operator not in self.operators:
            return CheckpointPolicy.PREFER_RECOMPUTE
        if self.watcher is not None:
            self.watcher(context.op_output)
        return CheckpointPolicy.MUST_SAVE
