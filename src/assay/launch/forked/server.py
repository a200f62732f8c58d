"""The parent's handle of the fork server: it starts the server when the first child is asked for, and asks for others.

The server (`assay.worker.processes.fork_server`) has imported torch and its compiler, and forks a child for each
request. The import takes most of a short run's processor time, and is then made once for all. A request is one message
with the child's arguments and the descriptors that it needs. The answers come over a socket of the child's own: first
its number, and at its end its exit code.

Nothing depends on the server: where it cannot start, or has died, `fork` returns None, and the caller starts a process
in the ordinary way.
"""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

from assay.launch.forked.process import ForkedProcess

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
