"""Assay: a laboratory in which every optimization of GPT training predicts, acts and proves itself.

`train`, `compare`, `estimate`, `project` and `anatomy` are imported on first use, so that ``import assay`` is quick and
loads no torch. The package also contains a subpackage named `estimate`. The class below keeps its import from replacing
the function of the same name.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.api import anatomy as anatomy
    from assay.api import compare as compare
    from assay.api import estimate as estimate
    from assay.api import project as project
    from assay.api import train as train

__all__ = ["anatomy", "compare", "estimate", "project", "train"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("assay.api"), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("assay")
    raise AttributeError(f"module 'assay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
