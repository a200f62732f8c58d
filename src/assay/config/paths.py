"""Absolute paths from user input, with ``~`` expanded."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator


def absolute(path: str | Path) -> Path:
    """Return the absolute path of a user's text; an unknown ``~user`` is left unchanged."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a path cannot contain a NUL character")
    return text


PathText = Annotated[str, AfterValidator(_without_nul)]
"""A path in a configuration; it cannot contain a NUL character."""
