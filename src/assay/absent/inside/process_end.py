"""The end of the process: whatever ends it, the findings are written first, as far as that is possible.

A process that is killed writes nothing at its end. The file of its last steps remains, and says that it was running.
"""

import atexit
import functools
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from .findings import ObserverFindings
from .script_lines import is_observers


def follow_end(findings: ObserverFindings) -> None:
    """Write the findings at exit, after an exception, before `os._exit` and `os.execv`, and at SIGTERM."""
    atexit.register(_at_exit, findings)
    os.register_at_fork(after_in_child=findings.begin_fork)
    _follow_exceptions(findings)
    _follow_exits(findings)
    _follow_signal(findings)


def _at_exit(findings: ObserverFindings) -> None:
    if findings.ended["how"] == "running":
        findings.ended = {"how": "finished"}
    findings.write()
    findings.library.let_go()


def _follow_exceptions(findings: ObserverFindings) -> None:
    shown = sys.excepthook

    def remembered(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        lines = str(error).strip().splitlines()
        place: dict[str, Any] = {"file": "", "line": 0}
        while trace is not None:
            if not is_observers(trace.tb_frame.f_code.co_filename):
                place = {"file": trace.tb_frame.f_code.co_filename, "line": trace.tb_lineno}
            trace = trace.tb_next
        said = {"how": "raised", "error": kind.__name__, "message": lines[0] if lines else "", "place": place}
        findings.ended = {"how": "interrupted"} if kind is KeyboardInterrupt else said
        return shown(kind, error, error.__traceback__)

    sys.excepthook = remembered


def _follow_exits(findings: ObserverFindings) -> None:
    """Write the findings before the process leaves at once, or replaces its program by another."""
    for name in ("_exit", "execv", "execve"):
        setattr(os, name, _written_first(getattr(os, name), findings))


def _written_first(leave: Callable[..., Any], findings: ObserverFindings) -> Callable[..., Any]:
    @functools.wraps(leave)
    def written(*given: Any) -> Any:
        if os.getpid() == findings.process:
            if findings.ended["how"] == "running":
                findings.ended = {"how": "finished"}
            findings.write()
        return leave(*given)

    return written


def _follow_signal(findings: ObserverFindings) -> None:
    """Handle SIGTERM unless the script does; the signal then takes its usual effect."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def stopped(number: int, frame: FrameType | None) -> None:
        if os.getpid() == findings.process:
            findings.ended = {"how": "signal", "signal": number}
            findings.write()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stopped)
