"""Programs of assay that are forked from the process that tests: what they import, it has imported once.

A cold start takes seconds of processor time. A forked program has its own session, streams and environment like a
started one, and the ranks and the reference process that a run starts in turn are forked, too. It has no command line
of its own, so a test that looks for processes by theirs or measures a process takes started ones.
"""

import atexit
import faulthandler
import gc
import logging
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

_MODULES = ("assay.worker", "torch.distributed.run", "assay.cli.main")
"""Beginnings of the names of modules that are forked."""
_WAVE = str(Path(__file__).with_name("fake_wave.py"))
"""File that is forked as well. It trains nothing, so it needs no torch."""


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the children of runs forked while the test runs."""
    fork_children(monkeypatch)


def fork_children(patch: pytest.MonkeyPatch) -> None:
    """Have the children of runs forked until the patch is undone."""
    _import_what_runs_need()
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    for place in (subprocess, subprocess_handler):
        patch.setattr(place, "Popen", Forked)


def _import_what_runs_need() -> None:
    import torch._dynamo
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel  # noqa: F401

    import assay.worker.proof.reference
    import assay.worker.session  # noqa: F401


class Forked(subprocess.Popen):  # type: ignore[type-arg]
    """A process that is forked if it runs a program of assay's, and started if not."""

    def _execute_child(self, args: Sequence[str], *others: Any) -> None:
        program, arguments = _program(args)
        if program is None:
            super()._execute_child(args, *others)  # type: ignore[misc]
            return
        if program != _WAVE:
            _import_what_runs_need()
        _, _, _, kept, folder, environment, _, _, _, *rest = others
        own_in, their_in, their_out, own_out, their_error, own_error, *_ = rest
        sys.audit("subprocess.Popen", args[0], args, folder, environment)  # as a started one's
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _be(program, arguments, (own_in, own_out, own_error), set(kept), folder, environment)
        self._child_created = True
        self._close_pipe_fds(own_in, their_in, their_out, own_out, their_error, own_error)  # type: ignore[attr-defined]


def _program(command: Sequence[str]) -> tuple[str | None, list[str]]:
    """Module or file that ``python [-P] [-u] [-m] PROGRAM …`` runs, and its arguments; none of another program."""
    rest = [one for one in command[1:] if one not in ("-P", "-u")] if command[0] == sys.executable else []
    if rest[:1] == [_WAVE]:
        return _WAVE, rest[1:]
    found = len(rest) > 1 and rest[0] == "-m" and rest[1].startswith(_MODULES)
    return (rest[1], rest[2:]) if found else (None, [])


def _be(
    program: str,
    arguments: Sequence[str],
    streams: tuple[int, int, int],
    kept: set[int],
    folder: str | None,
    environment: Mapping[str, str] | None,
) -> NoReturn:
    """Run a program as that of this new process, and end."""
    code = 1
    try:
        os.setsid()
        _settle(streams, kept)
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        os.chdir(folder or os.curdir)
        sys.argv = [program, *arguments]
        if program == _WAVE:
            runpy.run_path(program, run_name="__main__")
        else:
            fork_children(pytest.MonkeyPatch())
            # pytest loads a package with a plugin itself, and runpy cannot run what it loads.
            sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, AssertionRewritingHook)]
            sys.modules.pop(program, None)
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _end_daemons() -> None:
    """End the loader processes of this one, as the interpreter's exit does."""
    for child in multiprocessing.active_children():
        if child.daemon and child._parent_pid == os.getpid():  # type: ignore[attr-defined]
            child.kill()


def _settle(streams: tuple[int, int, int], kept: set[int]) -> None:
    """Take the streams, and leave behind what the process that tests has open, alive or arranged for its end."""
    atexit._clear()
    atexit.register(_end_daemons)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    given = [os.dup(one) if one >= 0 else None for one in streams]
    for number, one in enumerate(given):
        if one is not None:
            os.dup2(one, number)
    # Open descriptors stay taken: a library's handler of forks closes the numbers that it has, and objects of the first
    # process theirs, whatever they are by then.
    nothing = os.open(os.devnull, os.O_RDWR)
    for one in {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2, nothing, *kept}:
        os.dup2(nothing, one)
    # A child of this process replaces these in its turn, which must not close what they stand for.
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering, closefd=False)  # noqa: SIM115
        for number, mode, buffering in ((0, "r", -1), (1, "w", -1), (2, "w", 1))
    )
    faulthandler.enable(2)
    for handler in filter(None, (one() for one in logging._handlerList)):  # type: ignore[attr-defined]
        if type(handler) is logging.StreamHandler:  # it would write to a descriptor that is another file's now
            handler.stream = sys.stderr  # `setStream` would flush the other one, which a test may have closed
    gc.collect()
    gc.freeze()  # tensors of tests are not the run's
