"""The folder is the registry: every module here that is not part of the frame defines one or more `Form` objects.

To add laws, drop a file into the folder, or into the folder `scaling` of `ASSAY_EXTENSIONS`.
"""

import importlib
from functools import cache
from pathlib import Path
from types import ModuleType

from assay.config.extensions import extension_folder, modules
from assay.errors import UsageError
from assay.scaling.laws.base import Form

_FRAME = {"__init__", "base", "registry", "terms", "power"}
_FIRST = ("hoffmann", "kaplan", "kaplan_joint", "kaplan_steps")
"""Modules whose laws are listed first, in this order. Others follow by name."""


def forms() -> dict[str, Form]:
    """Return every law's form by name.

    Raises `UsageError` for a file of the user's that cannot be imported, has no form, or whose name is taken.
    """
    return dict(_known(extension_folder("scaling")))


def form_named(name: str) -> Form:
    """Return the form of a law. Raises `UsageError` with the known names for an unknown one."""
    known = forms()
    if name not in known:
        raise UsageError(f"there is no law {name!r}; there are {', '.join(known)}")
    return known[name]


@cache
def _known(folder: Path | None) -> dict[str, Form]:
    """Forms of the package and of another folder, whose files are imported once."""
    others = sorted({path.stem for path in Path(__file__).parent.glob("*.py")} - _FRAME - {*_FIRST})
    found: dict[str, Form] = {}
    own = (importlib.import_module(f"{__package__}.{name}") for name in (*_FIRST, *others))
    for module in (*own, *(modules(folder, "scaling") if folder else ())):
        _add(module, found)
    return found


def _add(module: ModuleType, found: dict[str, Form]) -> None:
    """Add the forms that a module defines; one that it imports from an earlier module is none of its own."""
    defined = {id(value): value for value in vars(module).values() if isinstance(value, Form)}
    own = [form for form in defined.values() if form not in found.values()]
    if not own:
        raise UsageError(f"{module.__file__} defines no law; define an assay.scaling.laws.Form in it")
    for form in own:
        if form.name in found:
            raise UsageError(f"{module.__file__} defines the law {form.name!r}, which exists; choose another name")
        found[form.name] = form
