"""A command line in a process of its own, and a fault at one of its changes of the disk: a kill −9, or a full disk.

The process is forked from the one that tests, so its cells are the same fakes, and it has imported everything. An audit
hook of the interpreter counts what it does below its home: files that are opened for writing, renamed and removed,
folders, processes that are started, and connections to the index. The fault stands in the place of one of them.
"""

import errno
import os
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import psutil

from assay.studies.kinds import kinds

Fault = Callable[[str], None]
"""What happens in the place of a change; it receives the kind of the change."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_OF_A_PATH = ("os.rename", "os.remove", "os.mkdir", "os.truncate", "sqlite3.connect")
PATIENCE_SECONDS = 30.0
SLURM_PATIENCE_SECONDS = 90.0
"""A local job of submitit whose coordinator died before the job's file was written waits a minute for it, and ends."""


def killed(change: str) -> None:
    """End this process as a power cut would: nothing of its own runs afterwards."""
    os.kill(os.getpid(), signal.SIGKILL)


def orphaned(change: str) -> None:
    """Kill the process that supervises this one, which goes on."""
    os.kill(os.getppid(), signal.SIGKILL)


def full(change: str) -> None:
    """Refuse a change as a full disk does; removing a file and starting a process go on to work."""
    if change == "sqlite3.connect":
        raise sqlite3.OperationalError("database or disk is full")
    if change not in ("os.remove", "subprocess.Popen"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def arm(place: Path, number: int, fault: Fault, lasting: bool = False) -> None:
    """Let the fault happen in the place of this process's change of that number, from 0; a lasting one at all later."""
    seen, mine = count(), os.getpid()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if _changes(event, args, str(place)) and os.getpid() == mine:  # what is forked from it is another
            at = next(seen)
            if at == number or (lasting and at > number):
                fault(event)

    sys.addaudithook(hook)


def _changes(event: str, args: tuple[Any, ...], place: str) -> bool:
    if event == "open":
        path, _, flags = args
        return isinstance(flags, int) and bool(flags & _WRITES) and _within(path, place)
    if event == "subprocess.Popen":
        return any(_within(one, place) for one in args[1])
    return event in _OF_A_PATH and any(_within(one, place) for one in args[:2])


def _within(path: object, place: str) -> bool:
    return isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(place)


class Forked:
    """A process that is forked from this one, does some work, and exits with the number that the work returns."""

    def __init__(self, work: Callable[[], int], output: Path) -> None:
        self.output = output
        """File of what it prints."""
        self._code: int | None = None
        self.pid = os.fork()
        if not self.pid:
            _be(work, output)

    def wait(self) -> int:
        """Exit code; minus the number of the signal that killed it."""
        return self._ended(0) or 0

    def poll(self) -> int | None:
        """The same, or None while it runs."""
        return self._ended(os.WNOHANG)

    def _ended(self, options: int) -> int | None:
        if self._code is None and (found := os.waitpid(self.pid, options))[0]:
            self._code = os.waitstatus_to_exitcode(found[1])
        return self._code


def command(home: Path, *words: str, fault: Callable[[], None] = lambda: None) -> Forked:
    """Run the command line on a home, in a process of its own, in which `fault` is called at first.

    What it prints goes into a file that is named after the second word.
    """

    _import_what_commands_need()

    def work() -> int:
        from assay.cli.main import main

        os.environ["ASSAY_HOME"] = str(home)
        sys.argv = ["assay", *words]
        fault()
        main()
        return 0

    return Forked(work, home.with_name(f"{home.name}-{words[1]}.said"))


def _import_what_commands_need() -> None:
    """Import what every study would load after its fork, which takes a second or two."""
    for name in ("matplotlib.figure", "pandas", "pyarrow", "scipy.special", "omegaconf", "assay.worker.session"):
        import_module(name)
    kinds()


def _be(work: Callable[[], int], output: Path) -> NoReturn:
    """Do the work of this new process, and end it; what tests arranged for their own end is left alone."""
    code = 1
    try:
        said = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for number in (1, 2):
            os.dup2(said, number)
        sys.stdout, sys.stderr = (open(number, "w", 1, closefd=False) for number in (1, 2))  # noqa: SIM115
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


def until(holds: Callable[[], bool], what: str, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + patience_seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def processes_of(place: Path) -> list[psutil.Process]:
    """Living processes that have the place in their command line, or that work in it."""
    found = []
    for one in psutil.process_iter(["cmdline", "cwd", "status"]):
        words = " ".join((*(one.info["cmdline"] or ()), one.info["cwd"] or ""))
        if one.info["status"] != psutil.STATUS_ZOMBIE and str(place) in words:
            found.append(one)
    return found


def quiet(place: Path, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until no process works in the place any more: those of a dead coordinator end by themselves."""
    until(lambda: not processes_of(place), f"processes are left in {place}", patience_seconds)
