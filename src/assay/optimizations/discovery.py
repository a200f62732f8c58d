"""The folder is the registry: every module here that is not part of the frame defines one `Optimization`.

To add an optimization, drop a file into the folder, into a user's own (`assay.config.extensions`), or into one passed
to `search`. A large technique is a package of its own, whose `__init__` defines the `Optimization`.
"""

import importlib
import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from assay.config.extensions import VARIABLE, check_methods, classes, extension_folder, import_file, modules
from assay.config.run import Run, Spec
from assay.errors import UsageError, suggestion
from assay.optimizations.optimization import Numerics, Optimization, Stage

_FRAME = {"__init__", "card", "discovery", "optimization", "stack"}


@cache
def _own_names() -> frozenset[str]:
    return frozenset(_names(Path(__file__).parent))


@cache
def _own(name: str) -> type[Optimization]:
    """Import one optimization of assay's own. A run imports those that it uses, and no other."""
    return _only_optimization(importlib.import_module(f"{__package__}.{name}"))


@cache
def _extensions(folder: Path | None) -> dict[str, type[Optimization]]:
    """Optimizations of a user's own folder. Raises `UsageError` for a faulty file, and for a name that is taken."""
    found: dict[str, type[Optimization]] = {}
    for module in [] if folder is None else modules(folder, "optimizations"):
        kind = _only_optimization(module)
        if kind.name() in _own_names() or kind.name() in found:
            raise UsageError(f"{module.__file__} defines {kind.name()!r}, which exists; choose another name")
        found[kind.name()] = kind
    return found


def is_own(kind: type[Optimization]) -> bool:
    """Return whether an optimization is one of the user's, and none of assay's own."""
    return kind.name() not in _own_names()


_CONSTANTS = {"title": str, "stage": Stage, "numerics": Numerics, "saves": str, "pays": str, "sources": tuple}
"""Class constants that every optimization has, with their types."""

_added: dict[str, type[Optimization]] = {}

_stacks: dict[Any, tuple[Optimization, ...]] = {}
"""Stacks that this process has resolved, by their specs and by the optimizations that may be added."""
_MOST_STACKS = 1024


def catalogue() -> dict[str, type[Optimization]]:
    """Return every optimization by name, in the order of application: by stage, then by name."""
    known = {**{name: _own(name) for name in _own_names()}, **_extensions(extension_folder("optimizations")), **_added}
    return dict(sorted(known.items(), key=lambda item: (item[1].stage, item[0])))


def _named(name: str) -> type[Optimization] | None:
    """Return one optimization of the catalogue without importing the others; None if there is none of that name."""
    if name in _added:
        return _added[name]
    return _own(name) if name in _own_names() else _extensions(extension_folder("optimizations")).get(name)


def search(folder: Path) -> list[str]:
    """Add the optimizations in the files of another folder, and return their names.

    Raises `UsageError` for a file that cannot be imported, or that does not define exactly one optimization.
    """
    names = _names(folder)
    for name in names:
        _added[name] = _only_optimization(import_file(_file_of(folder, name), name))
    return names


def forget(names: Iterable[str]) -> None:
    """Remove optimizations that `search` added."""
    for name in names:
        _added.pop(name, None)
        sys.modules.pop(name, None)


def resolve(spec: Spec) -> Optimization:
    """Return the optimization that a spec names, with checked fields. Raises `UsageError` with one sentence."""
    kind = _named(spec.name)
    if kind is None:
        known = catalogue()
        several = any(name in known for name in re.split(r"[\s,]+", spec.name))
        listed = "; assay optimizations lists all (ASSAY_EXTENSIONS names the folder of your own)"
        hint = "; join several with +" if several else suggestion(spec.name, list(known)) or listed
        raise UsageError(f"unknown optimization {spec.name!r}{hint}")
    for field in spec.fields:
        if field not in kind.model_fields:
            has = f"its fields are {', '.join(kind.model_fields)}" if kind.model_fields else "it has no fields"
            raise UsageError(
                f"{spec.name} has no field {field!r}{suggestion(field, list(kind.model_fields)) or '; ' + has}"
            )
    try:
        return kind(**spec.fields)
    except ValidationError as error:
        finding = error.errors()[0]
        message = finding["msg"].removeprefix("Input ").removeprefix("Value error, ")
        raise UsageError(
            f"{spec.name}:{finding['loc'][0]}={finding['input']!r} is not possible: it {message}"
        ) from None


def all_known(run: Run) -> bool:
    """True if every optimization of a run can still be resolved: a user's own may have gone since it ran."""
    try:
        optimizations_of(run)
    except UsageError:
        return False
    return True


def optimizations_of(run: Run) -> tuple[Optimization, ...]:
    """Return the run's optimizations in the order of application, independent of the order of listing.

    A stack is resolved once, as it is listed and as it is written out with all its fields.
    """
    key = _key(run.optimizations)
    if key not in _stacks:
        found = tuple(sorted(map(resolve, run.optimizations), key=lambda one: (one.stage, one.name())))
        if len(_stacks) >= _MOST_STACKS:
            _stacks.clear()
        _stacks[key] = _stacks[_key(one.spec() for one in found)] = found
    return _stacks[key]


def _key(specs: Iterable[Spec]) -> Any:
    """Return what determines a stack: 1, 1.0 and True are fields of three kinds."""
    listed = tuple((one.name, *((name, type(value), value) for name, value in one.fields.items())) for one in specs)
    return listed, tuple(_added.items()), os.environ.get(VARIABLE)


def _names(folder: Path) -> list[str]:
    """Names of the modules and packages in a folder."""
    packages = (path.parent.name for path in folder.glob("*/__init__.py"))
    return sorted({path.stem for path in folder.glob("*.py")}.union(packages) - _FRAME)


def _file_of(folder: Path, name: str) -> Path:
    package = folder / name / "__init__.py"
    return package if package.exists() else folder / f"{name}.py"


def _only_optimization(module: ModuleType) -> type[Optimization]:
    found: list[type[Optimization]] = classes(module, Optimization)
    if len(found) != 1:
        raise UsageError(f"{module.__file__} must define exactly one Optimization, and defines {len(found)}")
    for name, kind in _CONSTANTS.items():
        if not isinstance(getattr(found[0], name, None), kind):
            raise UsageError(f"{module.__file__}: {found[0].__name__}.{name} is missing, or is no {kind.__name__}")
    check_methods(module, found[0])
    return found[0]
