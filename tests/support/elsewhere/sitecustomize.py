"""Takes away from assay what only Linux or Unix has. Python imports this at its start if the folder is on its path.

Only assay's own modules lose it, because torch and the standard library could not run on this machine without. A lock
of Windows is played by one of a range of bytes, which also belongs to a process and is not inherited.
"""

import builtins
import ctypes
import errno
import fcntl
import os
import pathlib
from types import ModuleType
from typing import Any

ABSENT = {"fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "posix", "memray"}
LACKING = {
    "os": {
        "fork", "forkpty", "killpg", "getpgid", "setpgid", "setsid", "getsid", "getuid", "geteuid", "getgid", "nice",
        "sched_getaffinity", "sched_setaffinity", "pread", "pwrite", "sysconf", "ttyname", "getloadavg", "uname",
        "mkfifo", "fchmod", "fchown", "chown", "statvfs", "WNOHANG", "O_ACCMODE", "O_NONBLOCK", "O_CLOEXEC",
    },
    "signal": {"SIGHUP", "SIGKILL", "SIGCHLD", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGALRM", "set_wakeup_fd", "pause"},
    "select": {"poll", "epoll"},
    "socket": {"AF_UNIX", "SOCK_SEQPACKET", "send_fds", "recv_fds"},
}  # fmt: skip
_KERNEL = ("/proc", "/sys")
_import = builtins.__import__


def _poorer(name: str) -> ModuleType:
    """Return a copy of a module without what another system lacks."""
    whole, copy = _import(name), ModuleType(name)
    copy.__dict__.update({key: value for key, value in vars(whole).items() if key not in LACKING.get(name, ())})
    return copy


def _of_library(name: str | None, *given: Any, **options: Any) -> Any:
    if name is None:
        raise TypeError("there is no library without a name")
    return ctypes.CDLL(name, *given, **options)


_POORER = {name: _poorer(name) for name in (*LACKING, "ctypes", "platform")}
_POORER["ctypes"].CDLL = _of_library
_POORER["platform"].system = lambda: "Windows"


def _imported(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> ModuleType:
    asking = (globals or {}).get("__package__") or (globals or {}).get("__name__") or ""
    if asking.partition(".")[0] == "assay" and level == 0:
        if name in ABSENT:
            raise ImportError(f"no module named {name!r} on this system")
        if name in _POORER:
            return _POORER[name]
    return _import(name, globals, locals, fromlist, level)


def _locking(number: int, mode: int, count: int) -> None:
    """Lock bytes from the present position on for this process, as `msvcrt.locking` does."""
    readable = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    kind = fcntl.LOCK_SH if readable else fcntl.LOCK_EX
    try:
        fcntl.lockf(number, kind | fcntl.LOCK_NB, count, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
    except BlockingIOError as error:
        raise PermissionError(errno.EACCES, "Permission denied") from error


def _without_kernel(method: Any) -> Any:
    def asked(path: pathlib.Path, *given: Any, **options: Any) -> Any:
        if str(path).startswith(_KERNEL):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return method(path, *given, **options)

    return asked


_exists = pathlib.Path.exists
# The standard library takes a system with this module for Windows, so only assay sees it.
_POORER["msvcrt"] = ModuleType("msvcrt")
_POORER["msvcrt"].locking, _POORER["msvcrt"].LK_NBLCK = _locking, 2
builtins.__import__ = _imported
pathlib.Path.read_text = _without_kernel(pathlib.Path.read_text)
pathlib.Path.write_text = _without_kernel(pathlib.Path.write_text)
pathlib.Path.exists = lambda path, **options: not str(path).startswith(_KERNEL) and _exists(path, **options)
