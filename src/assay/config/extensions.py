"""Code of a user's own: files that extend assay, and functions by their names.

`ASSAY_EXTENSIONS` names a folder with the subfolders `optimizations`, `studies`, `executors`, `metrics` and `scaling`.
Every Python file in them is imported when its kind is first needed. Child processes inherit the variable, so they find
the same.

A function is named as `package.module:function` or `path/to/file.py:function`. Its module is imported as Python would
from the user's folder, so it may import its neighbours.
"""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from assay.errors import UsageError, first_line, short_text

Kind = Literal["optimizations", "studies", "executors", "metrics", "scaling"]

VARIABLE = "ASSAY_EXTENSIONS"


def extension_folder(kind: Kind) -> Path | None:
    """Return the folder of one kind of extensions; None if there is none.

    Raises `UsageError` if `ASSAY_EXTENSIONS` is set and is no folder.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    if not Path(named).is_dir():
        raise UsageError(f"{VARIABLE}={named} is no folder; create it, or unset the variable")
    folder = Path(named).absolute() / kind
    return folder if folder.is_dir() else None


def modules(folder: Path, kind: Kind) -> list[ModuleType]:
    """Import every Python file of a folder, in the order of their names.

    Raises `UsageError` with the file and its error if one cannot be imported.
    """
    return [import_file(path, f"assay_extensions.{kind}.{path.stem}") for path in sorted(folder.glob("*.py"))]


def own_line(error: BaseException) -> str | None:
    """Return the file and line of a user's own extension in which an error was raised; None if it passed through none.

    The innermost such line counts.
    """
    folder, found = os.environ.get(VARIABLE), None
    trace = error.__traceback__
    while folder and trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if Path(file).is_relative_to(Path(folder).absolute()):
            found = f"{file}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return found


def classes(module: ModuleType, base: type) -> list[Any]:
    """Return the classes derived from `base` that a module defines itself."""
    found = (kind for _, kind in inspect.getmembers(module, inspect.isclass) if issubclass(kind, base))
    return [kind for kind in found if kind.__module__ == module.__name__]


def check_methods(module: ModuleType, kind: Any) -> None:
    """Raise `UsageError` if a class of a module lacks methods that its base requires."""
    if lacking := sorted(getattr(kind, "__abstractmethods__", ())):
        methods = "the method" if len(lacking) == 1 else "the methods"
        raise UsageError(f"{module.__file__}: {kind.__name__} has to define {methods} {', '.join(lacking)}")


def classes_by_name(module: ModuleType, base: type, constant: str) -> dict[str, Any]:
    """Return the classes derived from `base` that a module defines itself, by the name that each has as a constant.

    Raises `UsageError` if there is none, and for one without that name or without a method that it needs.
    """
    found: dict[str, Any] = {}
    for kind in classes(module, base):
        name = getattr(kind, constant, None)
        if not isinstance(name, str):
            raise UsageError(
                f"{module.__file__}: {kind.__name__}.{constant} is missing, or is no text; "
                f"add {constant}: ClassVar[str] with the name that users write"
            )
        check_methods(module, kind)
        found[name] = kind
    if not found:
        what = base.__name__.lower()
        raise UsageError(f"{module.__file__} defines no {what}; define a subclass of {base.__module__}.{base.__name__}")
    return found


def import_file(path: Path, name: str) -> ModuleType:
    """Import one file under a name. Raises `UsageError` with the file and its error if that fails."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name, None)
        raise UsageError(f"{path} cannot be imported ({type(error).__name__}: {error})") from error
    return module


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
