"""Executors: where and how the waves of a study run. `local` is built in, and a user's own files add others."""

import inspect
from types import ModuleType

from assay.config.extensions import extension_folder, modules
from assay.errors import UsageError, meant
from assay.executors.base import Executor
from assay.executors.local import Local


def executors() -> dict[str, type[Executor]]:
    """Return every executor by its name.

    Raises `UsageError` for a file of the user's that cannot be imported, or that defines no executor.
    """
    found: dict[str, type[Executor]] = {Local.name: Local}
    folder = extension_folder("executors")
    for module in [] if folder is None else modules(folder, "executors"):
        found |= {kind.name: kind for kind in _defined(module)}
    return found


def executor(name: str) -> Executor:
    """Return an executor by its name. Raises `UsageError` for another name."""
    known = executors()
    if name not in known:
        hint = meant(name, list(known)) or f"; there are {', '.join(known)}"
        raise UsageError(f"there is no executor {name!r}{hint}")
    return known[name]()


def _defined(module: ModuleType) -> list[type[Executor]]:
    found = [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Executor) and kind.__module__ == module.__name__
    ]
    if not found:
        raise UsageError(f"{module.__file__} defines no executor; define a subclass of assay.executors.base.Executor")
    return found
