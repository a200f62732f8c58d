"""Lines of the script: which one asks torch for something at this moment."""

import os
import sys
from types import FrameType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_STANDARD = os.path.dirname(os.__file__)


def _is_torchs(file: str) -> bool:
    """True for files of torch, of this observer and of the standard library; the last may stand between two others."""
    within = f"{os.sep}torch{os.sep}" in file and "site-packages" in file
    standard = file.startswith(_STANDARD) and "site-packages" not in file
    return within or standard or file.startswith((_HERE, "<"))


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
    while outer is not None and ("site-packages" in outer.f_code.co_filename or _is_torchs(outer.f_code.co_filename)):
        outer = outer.f_back
    if outer is not None and outer is not frame:
        found["caller"] = f"{outer.f_code.co_filename}:{outer.f_lineno}"
    return found
