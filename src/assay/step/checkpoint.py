"""Checkpoint modules by giving them a class whose forward is recomputed in backward.

A compiler guards the identity of a module's forward. A forward that is an attribute differs from module to module, so
every block would be compiled anew. A method of a class is the same for all.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

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
