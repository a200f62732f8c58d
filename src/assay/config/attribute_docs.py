"""The texts below the fields of a class, which Python itself does not keep."""

import ast
import inspect
import sys
from functools import cache
from types import ModuleType
from typing import Any


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
