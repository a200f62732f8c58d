"""Lines of the script: which one asks torch for something at this moment."""

import os
import sys
from types import FrameType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_STANDARD = os.path.dirname(os.__file__)


_TYPED = ("<string>", "<stdin>", "<ipython")
"""Files of code that a user has typed; other names in angle brackets are made by libraries."""


def is_observers(file: str) -> bool:
    """True for files of this observer."""
    return file.startswith(_HERE)


def _is_installed(file: str) -> bool:
    """True for files of installed packages."""
    return "site-packages" in file or "dist-packages" in file


def _is_torchs(file: str) -> bool:
    """True for files of torch and what it makes, of this observer, and of the standard library between two others."""
    within = (f"{os.sep}torch{os.sep}" in file and _is_installed(file)) or "torchinductor" in file
    standard = file.startswith(_STANDARD) and not _is_installed(file)
    return within or standard or is_observers(file) or (file.startswith("<") and not file.startswith(_TYPED))


def prints_now() -> bool:
    """True if torch is making the text of a tensor, for which it selects some of its values."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_torchs(frame.f_code.co_filename):
        if frame.f_code.co_filename.endswith("_tensor_str.py"):
            return True
        frame = frame.f_back
    return False


def place_now() -> dict[str, Any]:
    """Return the innermost line outside torch, and the innermost of the user's own files if that is another.

    Keys are ``file``, ``line`` and ``caller``, a text ``FILE:LINE`` or None. Threads of autograd have no line.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_torchs(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return {"file": "", "line": 0, "caller": None}
    found = {"file": frame.f_code.co_filename, "line": frame.f_lineno, "caller": None}
    outer: FrameType | None = frame
    while outer is not None and (_is_installed(outer.f_code.co_filename) or _is_torchs(outer.f_code.co_filename)):
        outer = outer.f_back
    if outer is not None and outer is not frame:
        found["caller"] = f"{outer.f_code.co_filename}:{outer.f_lineno}"
    return found
