"""Differences of operating systems: locks of files, signals, closed pipes, and the end of processes.

Each function does the same on Linux, macOS and Windows, or says what it does less. The rest of the package knows no
system by name. A run records which figures its system does not tell (`worker.result.missing_figures`).

Windows has no signal that requests an end, no process groups, and no lock that a child inherits. It also keeps the
number of a parent that has ended, so a child has to look whether that process lives.
"""

import gc
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl as _fcntl

    fcntl: Any = _fcntl
except ImportError:
    fcntl = None

HANG_UP: int | None = getattr(signal, "SIGHUP", None)
"""The signal of a terminal that closes; None where there is none."""

STOPPING: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, *((HANG_UP,) if HANG_UP is not None else ()))
"""Signals that request an end."""

KILL = 9
"""Number of the signal that no process can handle."""

SIGNALS_STOP = hasattr(os, "killpg")
"""True if `terminate` requests an end. Otherwise it kills, and a request has to be written to the process."""

LOCKS_ARE_INHERITED = fcntl is not None
"""True if a child keeps the lock of an open file that is passed to it (`own_session`)."""

CAN_FORK_WITH_THREADS = sys.platform == "linux" and hasattr(os, "fork")
"""True if a process that has imported torch can be forked safely."""

BINARY: int = getattr(os, "O_BINARY", 0)
"""Flag of `os.open` without which Windows would rewrite the ends of lines."""

NO_WAITING: int = getattr(os, "O_NONBLOCK", 0)
"""Flag of `os.open` with which the opening of a pipe does not wait for its writer."""

_LOCKED_BYTE = 2**40
"""Place of the byte that is locked on Windows: beyond the content, because a locked byte cannot be read."""

_LOOK_SECONDS = 0.5


def lock(file: IO[bytes], *, shared: bool = False) -> None:
    """Lock an open file for this process until it is closed. Raises `BlockingIOError` if another process holds it.

    Windows has exclusive locks only. Raises another `OSError` if the file system has no locks.
    """
    if fcntl is not None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return
    import msvcrt as _msvcrt

    msvcrt: Any = _msvcrt
    number = file.fileno()
    before = os.lseek(number, 0, os.SEEK_CUR)
    try:
        os.lseek(number, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(error.errno, "another process holds the lock") from error
    finally:
        os.lseek(number, before, os.SEEK_SET)


def hold(folder: Path) -> int | None:
    """Lock a folder, and return a descriptor whose end, also by a kill, ends the lock. Raises `BlockingIOError`.

    None if this system or this file system has no locks of folders.
    """
    if fcntl is None:
        return None
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(number)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return number


def writable(number: int) -> bool:
    """True if a descriptor is open for writing. Windows tells only whether it is open."""
    try:
        if fcntl is None:
            os.fstat(number)
            return True
        return bool(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY)
    except OSError:
        return False


def own_session(*kept: IO[bytes]) -> dict[str, Any]:
    """Return the arguments of `Popen` for a process that a terminal's Ctrl-C does not reach.

    It inherits the files that are `kept`, with their locks; on Windows it inherits none.
    """
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True, "pass_fds": tuple(one.fileno() for one in kept) if LOCKS_ARE_INHERITED else ()}


def kill_group(leader: int) -> None:
    """Kill a process that has a session of its own, with every process that it started. It may have ended.

    On Windows the processes that a leader started are not found once it has ended.
    """
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # macOS refuses to signal a group of ended processes
            os.killpg(leader, KILL)
        return
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(leader)
        for one in (*process.children(recursive=True), process):
            with suppress(psutil.Error):
                one.kill()


def is_orphaned(parent: int) -> bool:
    """True if the process that started this one, whose number was `parent`, has ended."""
    if os.getppid() != parent:
        return True
    if SIGNALS_STOP:
        return False
    import psutil

    return not psutil.pid_exists(parent)


def is_closed(pipe: int, wait_seconds: float | None = 0.0) -> bool:
    """True if no process holds a pipe's other end. Waits at most `wait_seconds` (None: no limit), and reads nothing.

    Windows cannot look at a pipe so. There the answer is whether the parent has ended.
    """
    if hasattr(select, "poll"):
        watched = select.poll()
        watched.register(pipe, select.POLLHUP)  # Linux reports a closed end to everyone, macOS to those who ask
        return any(happened & select.POLLHUP for _, happened in watched.poll(wait_seconds and wait_seconds * 1000))
    parent, began = os.getppid(), time.monotonic()
    while not is_orphaned(parent):
        if wait_seconds is not None and time.monotonic() - began >= wait_seconds:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def fork_writer(work: Callable[[], tuple[str, int]]) -> tuple[int, int]:
    """Fork a process that does `work`, writes the text that it returns, and ends with the exit code that it returns.

    Return the number of the process, and the end of a pipe from which its text is read. A process whose work raises
    writes nothing and ends with 1. Windows cannot fork.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            text, code = work()
            with os.fdopen(writing, "w") as pipe:
                pipe.write(text)
        finally:
            os._exit(code)
    os.close(writing)
    return child, reading


def read_fork(child: int, reading: int) -> tuple[str, int]:
    """Return the text and the exit code of a process of `fork_writer`; wait until it has ended."""
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    return text, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Fork:
    """A fork of this process that does `work`, with some of the interface of `subprocess.Popen`.

    Its standard input and output are pipes to this process, and its standard error is `log`. It ends with the code that
    the work returns, or with 1 and a traceback if the work raises. Windows cannot fork.
    """

    def __init__(self, work: Callable[[], int], log: IO[bytes]) -> None:
        given, written = os.pipe()
        read, taken = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(work, (given, taken, log.fileno()))
        for one in (given, taken):
            os.close(one)
        self.stdin, self.stdout = os.fdopen(written, "wb"), os.fdopen(read, "rb")
        self.returncode: int | None = None
        """Exit code, or minus the number of the signal that killed it; None while it is not known to have ended."""

    def kill(self) -> None:
        """End it at once."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, and return its exit code. Raises `subprocess.TimeoutExpired`."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            child, status = os.waitpid(self.pid, 0 if until is None else os.WNOHANG)
            if child:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif until is not None and time.monotonic() >= until:
                raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
            else:
                time.sleep(_LOOK_SECONDS)
        return self.returncode


def _become(work: Callable[[], int], streams: tuple[int, int, int]) -> None:
    """Take standard streams, let go of everything else of the parent's, do the work, and end this process."""
    code = 1
    try:
        for number, one in enumerate(streams):
            os.dup2(one, number)
        # The parent may have others in their place, or lines in them. Without an exit of Python nothing flushes these.
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, buffering=1, closefd=False)  # noqa: SIM115
            for number, mode in enumerate(("r", "w", "w"))
        )
        # The parent's ends of the pipes among them: while this process held one, it would never see it closed.
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        for one in STOPPING:
            signal.signal(one, signal.SIG_DFL)
        gc.freeze()  # what the parent has is not this process's garbage
        gc.enable()
        code = work()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)
