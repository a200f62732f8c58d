"""A process that the fork server forked, with the part of the interface of `subprocess.Popen` that a parent uses.

The server is the process's real parent, and says over a socket with which code it ended. If the server dies, the
process goes on, since its lifeline is held here. Its exit code is then lost, but not its result, which is in its
folder. A process that ends so without a result counts as killed.
"""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import IO

from assay.store.liveness import is_alive, this_process

_POLL_SECONDS = 0.05


class ForkedProcess:
    """One forked process. `reply` is the socket on which the server says its exit code."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes], reply: socket.socket) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        """Exit code, or minus the number of the signal that killed it; None while it is not known to have ended."""
        self._reply = reply
        self._served = True
        self._known = this_process(pid)
        """The process with its start time, because its number may later be another's; None if it has ended already."""

    def poll(self) -> int | None:
        """Return the exit code if the process has ended."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended, and return its exit code. Raises `subprocess.TimeoutExpired`."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("assay.worker", timeout or 0.0)
        return code

    def terminate(self) -> None:
        """Request that the process end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.returncode is None and (self._served or self._lives()):
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _ended(self, seconds: float | None) -> int | None:
        began = time.monotonic()
        if self.returncode is None and self._served:
            self._listen(seconds)
        while self.returncode is None and not self._served:
            if not self._lives():
                self.returncode = -signal.SIGKILL
            elif seconds is not None and time.monotonic() - began >= seconds:
                break
            else:
                time.sleep(_POLL_SECONDS)
        return self.returncode

    def _lives(self) -> bool:
        return self._known is not None and is_alive(self._known)

    def _listen(self, seconds: float | None) -> None:
        """Wait at most so many seconds for what the server says."""
        self._reply.settimeout(seconds)
        try:
            said = self._reply.recv(64)
        except (BlockingIOError, TimeoutError):
            return
        except OSError:
            said = b""
        self._reply.close()
        if said:
            self.returncode = int(said)
        else:
            self._served = False
