"""Makes the standard streams usable: closed ones are replaced, and characters that an encoding lacks are spelled out.

A process may be started with closed standard streams. Python then sets them to None, and the next file that is opened
gets their number, so that printed text would end up in it. The null device takes those numbers first.
"""

import codecs
import os
import sys
from contextlib import suppress

from assay.platforms import writable

_SPELLED = {
    "−": "-", "–": "-", "×": "x", "·": "-", "…": "...", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "±": "+-",
    "µ": "u", "✓": "yes", "✗": "no", "▶": ">", "—": "-", "Σ": "sum", "β": "beta", "λ": "lambda", "ε": "epsilon",
    "█": "#",
}  # fmt: skip
"""Characters of this package's own texts in ASCII; every other character is written as an escape."""

_ERRORS = "assay.spelled"


def settle() -> bool:
    """Make the three standard streams usable. Returns False if standard output cannot be written."""
    printable = writable(1)
    _fill_closed()
    codecs.register_error(_ERRORS, _spell)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_ERRORS)
    return printable


def silence() -> None:
    """Send standard output to the null device, after the reader of a pipe has closed it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fill_closed() -> None:
    """Open the null device under each number below 3 that is free, and create the streams that Python lacks."""
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding lacks; Python calls this if a character cannot be written."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_SPELLED.get(one) or ascii(one)[1:-1] for one in lacking), error.end
