"""Recompute modules in backward: checkpoints, and results kept from forward outside of autograd's saved tensors.

A checkpoint gives a module a class whose forward is recomputed. A compiler guards the identity of a module's forward. A
forward that is an attribute differs from module to module, so every block would be compiled anew. A method of a class
is the same for all.

At each operator of the forward, torch's selective checkpointing (`create_selective_checkpoint_contexts`) calls a policy
that decides whether to keep the result. Recomputation then uses it instead of computing it. Hooks on saved tensors do
not see such results, so the policy itself reports them to an instrument.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn
from torch._ops import OpOverload
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext, checkpoint

_MARK = "runs_again_in_backward"
"""Attribute that marks a checkpointed class."""


def repeat_in_backward(modules: Iterable[nn.Module], settings: Mapping[str, Any]) -> None:
    """Checkpoint the forward of each module in place; `settings` are those of torch's `checkpoint`."""
    classes: dict[type[nn.Module], type[nn.Module]] = {}
    for module in modules:
        kind = type(module)
        if kind not in classes:
            classes[kind] = _repeated(kind, settings)
        module.__class__ = classes[kind]


def is_repeated(module: nn.Module) -> bool:
    """True if backward recomputes the module's forward."""
    return getattr(type(module), _MARK, False)


def _repeated(kind: type[nn.Module], settings: Mapping[str, Any]) -> type[nn.Module]:
    class Repeated(kind):  # type: ignore[valid-type,misc]
        def forward(self, *given: Any, **named: Any) -> Any:
            return checkpoint(super().forward, *given, **named, **settings)

    Repeated.__name__ = Repeated.__qualname__ = kind.__name__
    setattr(Repeated, _MARK, True)
    return Repeated


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
