"""Executors: where and how the waves of a study run: here, on Ray, on Slurm, or as a user's own file says."""

from assay.config.extensions import classes_by_name, extension_folder, modules
from assay.errors import UsageError, among
from assay.executors.base import Executor
from assay.executors.local import Local
from assay.executors.ray import Ray
from assay.executors.slurm import Slurm


def executors() -> dict[str, type[Executor]]:
    """Return every executor by its name.

    Raises `UsageError` for a file of the user's that cannot be imported, that has no executor, or whose name is taken.
    """
    found: dict[str, type[Executor]] = {kind.name: kind for kind in (Local, Ray, Slurm)}
    folder = extension_folder("executors")
    for module in [] if folder is None else modules(folder, "executors"):
        for name, kind in classes_by_name(module, Executor, "name").items():
            if name in found:
                raise UsageError(f"{module.__file__} defines the executor {name!r}, which exists; choose another name")
            found[name] = kind
    return found


def executor(name: str) -> Executor:
    """Return an executor by its name. Raises `UsageError` for another name."""
    known = executors()
    if name not in known:
        hint = among(name, known)
        raise UsageError(f"there is no executor {name!r}{hint} (ASSAY_EXTENSIONS names the folder of your own)")
    return known[name]()
