"""Programs in the folder `docs`, which are no package."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


def program(name: str) -> Any:
    """Return a program of the folder as a module."""
    sys.path.insert(0, str(DOCS))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(DOCS))
