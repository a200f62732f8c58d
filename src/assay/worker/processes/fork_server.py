"""The fork server: ``python -P -m assay.worker.processes.fork_server``, which forks a measured child for each request.

It imports what every child imports, and finds out what is the same in every child: validators of models, and versions.
It does nothing else. When it forks, no thread of torch exists, no GPU was used, and nothing was computed. So a child
finds what a process of its own would have found after its imports. A child itself imports what only some runs need.

Requests come over standard input, a socket, and each brings the child's arguments and its descriptors
(`launch.forked`). When that socket closes, the parent has ended or needs no more children, and the server ends.
Its children live on: each has a lifeline of its own.
"""

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

RUN_IMPORTS = ("assay.worker.session", "torch._dynamo")
"""Modules that every run imports, in this order. Deterministic mode and torch's optimizers import torch's compiler."""
_MODULES = (
    *("assay.worker.main", *RUN_IMPORTS, "safetensors.torch"),
    *("assay.reference.expected", "assay.worker.proof.reference", "assay.values.check"),
)
_CUDA_NOT_STARTED = 3
"""The driver's answer before it is started (CUDA_ERROR_NOT_INITIALIZED)."""
_LONGEST_REQUEST = 2**16
_DESCRIPTORS = 5
"""Standard input, output and error of a child, the lock of its folder, and the socket for answers."""


def serve_requests(requests: socket.socket) -> list[str] | None:
    """Fork a child for each request, and return the child's arguments in it; in the server, return None at the end."""
    living: dict[int, socket.socket] = {}
    with _ends_of_children() as ended:
        while True:
            ready, _, _ = select.select([requests.fileno(), ended], [], [])
            if ended in ready:
                os.read(ended, 4096)
                _report(living)
            if requests.fileno() in ready:
                message, descriptors, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, _DESCRIPTORS)
                if not message:
                    return None
                child = _forked()
                if child is None:
                    _refuse(descriptors)
                elif child == 0:
                    for one in living.values():
                        one.close()
                    requests.detach()  # its descriptor becomes the child's standard input
                    _take(descriptors)
                    draw_anew()
                    arguments: list[str] = json.loads(message)
                    return arguments
                else:
                    living[child] = _answered(child, descriptors)


def _forked() -> int | None:
    """Fork; return 0 in the child and its number in the server, or None if the system refuses for now."""
    try:
        return os.fork()
    except OSError:  # too many processes, or too little memory
        return None


def _refuse(descriptors: Sequence[int]) -> None:
    """Say 0 instead of a child's number; the parent then starts this one itself."""
    for one in descriptors[:-1]:
        os.close(one)
    with socket.socket(fileno=descriptors[-1]) as reply, suppress(OSError):
        reply.send(b"0")


def draw_anew() -> None:
    """Seed numpy's global generator anew, which a child would otherwise share with all others of the server.

    Nothing of ours uses it, but a user's model may. Python's own generator seeds itself after a fork, and torch's has a
    fixed seed in every new process.
    """
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed()


def _answered(child: int, descriptors: Sequence[int]) -> socket.socket:
    """Say a child's number, once it leads a group of its own; return the socket for its exit code."""
    with suppress(OSError):  # it has done so itself, or has ended
        os.setpgid(child, child)
    for one in descriptors[:-1]:
        os.close(one)
    reply = socket.socket(fileno=descriptors[-1])
    with suppress(OSError):
        reply.send(str(child).encode())
    return reply


def _take(descriptors: Sequence[int]) -> None:
    """Become the leader of a group, and take a child's standard streams; the lock stays open while the child lives."""
    os.setpgid(0, 0)
    *streams, _, reply = descriptors
    for number, one in enumerate(streams):
        os.dup2(one, number)
    for one in (*streams, reply):
        os.close(one)


def _report(living: dict[int, socket.socket]) -> None:
    """Say the exit codes of all children that have ended."""
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            child, status = found
            with living.pop(child) as reply, suppress(OSError):
                reply.send(str(os.waitstatus_to_exitcode(status)).encode())


@contextmanager
def _ends_of_children() -> Iterator[int]:
    """Yield a descriptor that can be read when a child has ended; signals are as before after the block."""
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    before = signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler, the signal would not wake
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield ended
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
        os.close(ended)
        os.close(wake)


def _import_as_a_child() -> None:
    """Import what every child imports, in a child's order."""
    for name in _MODULES:
        importlib.import_module(name)


def _find_out() -> None:
    """Make what every child would make anew, and would be the same."""
    from assay.config.base import build_models
    from assay.worker.environment import packages, versions

    build_models()
    versions()
    packages()


def uses_cuda() -> bool:
    """Return whether this process has started CUDA. A fork of it could then use no GPU."""
    with suppress(OSError), open("/proc/self/maps") as maps:
        loaded = [line.split()[-1] for line in maps if "/libcuda.so" in line]
        return (
            bool(loaded) and ctypes.CDLL(loaded[0]).cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _CUDA_NOT_STARTED
        )
    return False


def _main() -> int:
    _import_as_a_child()
    _find_out()
    if uses_cuda():  # by a module that looks for a GPU; the parent starts its children itself
        return 0
    from assay.worker.main import main

    arguments = serve_requests(socket.socket(fileno=0))
    return 0 if arguments is None else main([*arguments, "--forked"])


if __name__ == "__main__":
    gc.disable()  # as in `assay.worker.__main__`
    from assay.worker.processes.ends import leave

    leave(_main())
