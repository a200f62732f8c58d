"""The parent's handle of the fork server: it starts the server when the first child is asked for, and asks for others.

The server (`assay.worker.processes.fork_server`) has imported torch and its compiler, and forks a child for each
request. The import takes most of a short run's processor time, and is then made once for all. A request is one message
with the child's arguments and the descriptors that it needs. The answers come over a socket of the child's own: first
its number, and at its end its exit code.

Nothing depends on the server: where it cannot start, or has died, `fork` returns None, and the caller starts a process
in the ordinary way.

A process that the fork server forked, with the part of the interface of `subprocess.Popen` that a parent uses.

The server is the process's real parent, and says over a socket with which code it ended. If the server dies, the
process goes on, since its lifeline is held here. Its exit code is then lost, but not its result, which is in its
folder. A process that ends so without a result counts as killed.
"""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

from assay.store.processes import is_alive, this_process

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


_PATIENCE_SECONDS = 120.0
"""Longest wait for a child's number; before the first one, the server imports torch."""
_END_SECONDS = 30.0


class ForkServer:
    """Context in which children can be forked from one server, a `program` in an environment, by several threads."""

    def __init__(self, program: Sequence[str], environment: Mapping[str, str]) -> None:
        self._program, self._environment = program, environment
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._gone = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(_END_SECONDS)

    @property
    def pid(self) -> int | None:
        """Number of the server's process; None while it does not run."""
        return None if self._process is None else self._process.pid

    def fork(self, arguments: Sequence[str], log: IO[bytes], lock: IO[bytes]) -> ForkedProcess | None:
        """Fork a worker with these arguments, which leads a process group of its own.

        Its standard error goes to `log`, and it keeps `lock` open. Returns None if the server cannot start, is gone, or
        could not fork this time.
        """
        with self._lock:
            control = self._control or self._started()
        if control is None:
            return None
        given, stdin = os.pipe()
        stdout, taken = os.pipe()
        reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                descriptors = [given, taken, log.fileno(), lock.fileno(), theirs.fileno()]
                socket.send_fds(control, [json.dumps(list(arguments)).encode()], descriptors)
            except OSError:
                pass
            finally:
                os.close(given)
                os.close(taken)
        number = self._number(reply)
        if number is None:
            for end in (stdin, stdout):
                os.close(end)
            reply.close()
            return None
        return ForkedProcess(number, open(stdin, "wb"), open(stdout, "rb"), reply)

    def _started(self) -> socket.socket | None:
        if self._gone:
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    self._program,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=self._environment,
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                self._gone = True
                return None
        self._control = ours
        return ours

    def _number(self, reply: socket.socket) -> int | None:
        """Wait for a child's number; None if the server refuses. One that is silent or has ended is given up."""
        reply.settimeout(_PATIENCE_SECONDS)
        said = b""
        with suppress(OSError):
            said = reply.recv(64)
        if not said:
            self._give_up()
            return None
        return int(said) or None  # 0: it could not fork this time

    def _give_up(self) -> None:
        """End a server that does not answer, so that no later request of its queue is served."""
        with self._lock:
            self._gone = True
            self._end(0.0)

    def _end(self, seconds: float) -> None:
        """Close the socket, whose end ends the server; kill it if it has not ended after so many seconds."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            self._process.kill()
            self._process.wait()
            self._process = None
