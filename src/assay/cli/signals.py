"""Signals that stop a command: Ctrl-C, SIGTERM of a scheduler and SIGHUP of a terminal that closes.

All three save and stop. A shell makes background processes ignore SIGINT, but they handle it here too. SIGHUP stays
ignored if it was ignored before, because `nohup` relies on it. A terminal that closes sends it more than once, and only
the first one counts: a second Ctrl-C would end the run without saving.
"""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from assay.platforms import HANG_UP, STOPPING

_asked: list[int] = []
"""Signals that have arrived."""


def stop_on_signals() -> None:
    """Raise `KeyboardInterrupt` in the main thread when one of the signals arrives."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    if HANG_UP is not None and signal.getsignal(HANG_UP) is not signal.SIG_IGN:
        signal.signal(HANG_UP, _hang_up)


def asked_to_stop() -> bool:
    """True if one of the signals has arrived: a verb that returns as if nothing had happened was interrupted."""
    return bool(_asked)


def _stop(number: int, frame: FrameType | None) -> None:
    _asked.append(number)
    raise KeyboardInterrupt


@contextmanager
def deaf() -> Iterator[None]:
    """Ignore the signals in the body, which writes and shows results."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hang_up(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    _asked.append(number)
    _leave_the_terminal()
    raise KeyboardInterrupt


def _leave_the_terminal() -> None:
    """Redirect the streams of a closed terminal to the null device, because writing to them would fail."""
    for descriptor in (0, 1, 2):
        try:
            os.ttyname(descriptor)
        except OSError as error:
            if error.errno == errno.EIO:
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
