"""Standard streams that can be used: a closed one is replaced, and a sign that an encoding lacks is spelled out.

A process may be started with standard streams closed. Python then has None in their place, and the next file that is
opened gets their number, so that what is printed would end up in it. The null device takes those numbers first.
"""

import codecs
import fcntl
import os
import sys
from contextlib import suppress

_SPELLED = {
    "−": "-", "–": "-", "×": "x", "·": "-", "…": "...", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "±": "+-",
    "µ": "u", "✓": "yes", "✗": "no", "▶": ">", "—": "-", "Σ": "sum", "β": "beta", "λ": "lambda", "ε": "epsilon",
}  # fmt: skip
"""Signs of this package's own texts in ASCII; every other sign is written as its code."""

_ERRORS = "assay.spelled"


def settle() -> bool:
    """Make the three standard streams usable. Returns False where standard output cannot be written."""
    writable = _writable(1)
    _fill_closed()
    codecs.register_error(_ERRORS, _spell)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_ERRORS)
    return writable


def silence() -> None:
    """Send standard output nowhere, once the reader of a pipe has gone."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _writable(number: int) -> bool:
    """True if the descriptor is open for writing."""
    try:
        return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        return False


def _fill_closed() -> None:
    """Open the null device under each number below 3 that is free, and make streams of those that Python lacks."""
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
    """Replace what an encoding lacks; Python calls this where a character cannot be written."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_SPELLED.get(one) or ascii(one)[1:-1] for one in lacking), error.end
