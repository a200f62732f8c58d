"""A function of a user's own by its name: `package.module:function`, or `path/to/file.py:function`.

The module is imported as Python would from the user's folder, so it may import its neighbours.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from assay.config.extensions import import_file
from assay.errors import UsageError, first_line, short_text


def names_a_function(text: object) -> bool:
    """True if a text has the form ``module:function``, which no preset, file or override has."""
    if not isinstance(text, str) or "=" in text:
        return False
    module, _, function = text.rpartition(":")
    named = module.endswith(".py") or all(part.isidentifier() for part in module.split("."))
    return function.isidentifier() and named


def call_function(name: str, folder: Path | str | None = None, *given: object) -> Any:
    """Import a module from `folder`, by default the working directory, call the function, and return its result.

    A function that takes arguments receives `given`. Raises `UsageError` with the error of the module or the function.
    """
    function = _function(name, Path(folder) if folder is not None else Path.cwd())
    try:
        return function(*given) if inspect.signature(function).parameters else function()
    except Exception as error:
        raise UsageError(f"{name} failed: {type(error).__name__}: {first_line(error)}") from error


def parameters_of(name: str, folder: Path | str | None = None) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function of the user's own. Raises `UsageError` if it is not found."""
    return inspect.signature(_function(name, Path(folder) if folder is not None else Path.cwd())).parameters


def needed_parameters(parameters: Mapping[str, inspect.Parameter]) -> tuple[str, ...]:
    """Return the names of those parameters without which a function cannot be called."""
    return tuple(
        name
        for name, one in parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    )


def _function(name: str, folder: Path) -> Callable[[], Any]:
    if not names_a_function(name):
        raise UsageError(f"{short_text(name)} names no function; write module:function or file.py:function")
    where, _, function = name.rpartition(":")
    if not folder.is_dir():
        raise UsageError(f"there is no folder {short_text(str(folder))} from which {where} could be imported")
    sys.path.insert(0, str(folder.absolute()))
    module = import_file(folder / where, Path(where).stem) if where.endswith(".py") else _module(where)
    found = getattr(module, function, None)
    if found is None:
        raise UsageError(f"{where} has no function {function!r}")
    if not callable(found):
        raise UsageError(f"{function} of {where} is no function, but of type {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise UsageError(f"{name} cannot be imported: {type(error).__name__}: {first_line(error)}") from error
