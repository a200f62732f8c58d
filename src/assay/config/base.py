"""Base classes of the configuration models, and the texts below their fields.

The models are frozen, strict about types, and closed to unknown keys. A path is a text of the user's, with ``~`` for
the home directory. Python itself does not keep the texts below the fields of a class, so they are read from its source.
"""

import ast
import inspect
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError

_LARGEST_INTEGER = 2**63 - 1


class Frozen(BaseModel):
    """An immutable value that compares by content and rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=(), defer_build=True)


def build_models(of: type[Frozen] = Frozen) -> None:
    """Build the validator of every imported model, which it would otherwise build at its first use."""
    for kind in of.__subclasses__():
        kind.model_rebuild(raise_errors=False)
        build_models(kind)


class Setting(Frozen):
    """Values that a user may choose; every number is finite, and every integer has at most 64 bits."""

    model_config = ConfigDict(allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _fits_64_bits(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise PydanticCustomError("too_large", "should be at most 2^63")
        return value


def absolute(path: str | Path) -> Path:
    """Return the absolute path of a user's text; an unknown ``~user`` is left unchanged."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a path cannot contain a NUL character")
    return text


PathText = Annotated[str, AfterValidator(_without_nul)]
"""A path in a configuration; it cannot contain a NUL character."""


def attribute_docs(kind: type[Any]) -> dict[str, str]:
    """Return the docstring under each field's definition, by field name; inherited fields are left out."""
    return _of_module(sys.modules[kind.__module__]).get(kind.__qualname__, {})


@cache
def _of_module(module: ModuleType) -> dict[str, dict[str, str]]:
    """Return the docstrings of each class at the top level of a module."""
    tree = ast.parse(inspect.getsource(module))
    return {one.name: _of_class(one) for one in tree.body if isinstance(one, ast.ClassDef)}


def _of_class(tree: ast.ClassDef) -> dict[str, str]:
    return {
        ast.unparse(statement.target): str(after.value.value)
        for statement, after in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }
