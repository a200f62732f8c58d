"""Results that stay between a module's forward and its recomputation, outside of what autograd saves.

Torch's selective checkpointing (`create_selective_checkpoint_contexts`) asks a policy at each operator of the forward
whether its result stays; the second forward then takes it instead of computing it. Hooks on saved tensors see nothing
of this, so the policy itself says what stays to an instrument that wants to know.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from torch._ops import OpOverload
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext


class Keeper(Protocol):
    """Keeps for backward what hooks on saved tensors do not see."""

    watcher: Callable[[Any], None] | None


class ResultsKept:
    """The policy that the results of some operators stay."""

    def __init__(self, operators: Iterable[OpOverload]) -> None:
        self.operators = frozenset(operators)
        self.watcher: Callable[[Any], None] | None = None
        """Told of each result that stays."""

    def __call__(
        self, context: SelectiveCheckpointContext, operator: OpOverload, *args: Any, **kwargs: Any
    ) -> CheckpointPolicy:
        if operator not in self.operators:
            return CheckpointPolicy.PREFER_RECOMPUTE
        if self.watcher is not None:
            self.watcher(context.op_output)
        return CheckpointPolicy.MUST_SAVE
