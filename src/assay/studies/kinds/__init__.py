"""Kinds of studies, one file each. The folder is the registry, and a user's own folder adds to it.

`studies` in the folder that `ASSAY_EXTENSIONS` names is the second folder.
"""

import importlib
from functools import cache
from pathlib import Path

from assay.config.extensions import classes_by_name, extension_folder, modules
from assay.errors import UsageError
from assay.studies.base import Study


def kinds() -> dict[str, type[Study]]:
    """Return every kind of study by its name.

    Raises `UsageError` for a file of the user's that cannot be imported, that has no study, or whose name is taken.
    """
    found = dict(_own())
    folder = extension_folder("studies")
    for module in [] if folder is None else modules(folder, "studies"):
        for name, kind in classes_by_name(module, Study, "kind").items():
            if name in found:
                raise UsageError(f"{module.__file__} defines the study {name!r}, which exists; choose another name")
            found[name] = kind
    return found


@cache
def _own() -> dict[str, type[Study]]:
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
    modules = (importlib.import_module(f"{__package__}.{name}") for name in names)
    return {name: kind for module in modules for name, kind in classes_by_name(module, Study, "kind").items()}
