"""Kinds of studies, one file each. The folder is the registry, and a user's own folder adds to it.

`studies` in the folder that `ASSAY_EXTENSIONS` names is the second folder.
"""

import importlib
from functools import cache
from pathlib import Path
from types import ModuleType

from assay.config.extensions import classes, extension_folder, modules
from assay.errors import UsageError
from assay.studies.base import Study


def kinds() -> dict[str, type[Study]]:
    """Return every kind of study by its name.

    Raises `UsageError` for a file of the user's that cannot be imported, that has no study, or whose name is taken.
    """
    found = dict(_own())
    folder = extension_folder("studies")
    for module in [] if folder is None else modules(folder, "studies"):
        for kind in _studies(module):
            if kind.kind in found:
                raise UsageError(
                    f"{module.__file__} defines the study {kind.kind!r}, which exists; choose another name"
                )
            found[kind.kind] = kind
    return found


@cache
def _own() -> dict[str, type[Study]]:
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
    every = (kind for name in names for kind in _studies(importlib.import_module(f"{__package__}.{name}")))
    return {kind.kind: kind for kind in every}


def _studies(module: ModuleType) -> list[type[Study]]:
    found: list[type[Study]] = classes(module, Study)
    if not found:
        raise UsageError(f"{module.__file__} defines no study; define a subclass of assay.studies.base.Study")
    return found
