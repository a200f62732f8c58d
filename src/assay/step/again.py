"""Modules whose forward runs again in backward, as a class of their own.

A compiler guards what a module's forward is. An attribute of each module would be another one for each, and every block
would be compiled anew; a method of a class is the same for all.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


def repeat_in_backward(modules: Iterable[nn.Module], settings: Mapping[str, Any]) -> None:
    """Checkpoint the forward of each; `settings` are those of torch's `checkpoint`."""
    classes: dict[type[nn.Module], type[nn.Module]] = {}
    for module in modules:
        kind = type(module)
        if kind not in classes:
            classes[kind] = _repeated(kind, settings)
        module.__class__ = classes[kind]


def _repeated(kind: type[nn.Module], settings: Mapping[str, Any]) -> type[nn.Module]:
    class Repeated(kind):  # type: ignore[valid-type,misc]
        def forward(self, *given: Any) -> Any:
            return checkpoint(super().forward, *given, **settings)

    Repeated.__name__ = Repeated.__qualname__ = kind.__name__
    return Repeated
