"""The program that ranks are forked from: it imports what they need once, which takes longer than most cases.

Each line of its input is a request to some ranks, which it answers with an exit code. Ranks live on for the next
request, because torch finds out once in a process how tensors over a mesh are to be cut. A process that tests starts
one such program, which ends with it.
"""

import atexit
import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

_PATIENCE_SECONDS = 900
"""Where cores are busy, ranks wait for each other."""
_CRASH_SECONDS = 0.5
"""A process that crashes closes its connections before it has ended."""


def forked(ranks: int, asked: Path, answered: Path, errors: Path, anew: bool = False) -> int:
    """Have so many ranks compute what is asked; the exit code of the first that failed. `anew` forks other ones."""
    program = _program()
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(json.dumps([ranks, str(asked), str(answered), str(errors), anew]) + "\n")
    program.stdin.flush()
    if select.select([program.stdout], [], [], _PATIENCE_SECONDS)[0] and (code := program.stdout.readline()):
        return int(code)
    _end(program)
    return 1


@cache
def _program() -> subprocess.Popen[str]:
    """What ranks are forked from: with those of a process's first cases it has imported what all need."""
    # Ranks import what their parent does, which need not be what is installed.
    imported = os.pathsep.join((str(Path(__file__).parents[2]), *filter(None, sys.path)))
    own = {"TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1", "PYTHONPATH": imported}
    started = subprocess.Popen(
        [sys.executable, __file__],
        env={**os.environ, **own},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(_end, started)
    return started


def _end(program: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    _program.cache_clear()


def _main() -> None:
    """Fork for every line."""
    import torch
    import torch._dynamo  # every rank's first optimizer would load it
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel

    from assay.optimizations import catalogue, search

    torch.set_num_threads(1)
    search(Path(__file__).parents[2] / "parallel" / "references")
    catalogue()
    gc.freeze()  # what was imported is no rank's to look through
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever a rank prints is no answer
    living = Living()
    for line in sys.stdin:
        ranks, asked, answered, errors, anew = json.loads(line)
        if anew:
            living.end()
        os.write(answer, f"{living.ask(ranks, asked, answered, errors)}\n".encode())
    living.end()


class Living:
    """Ranks that wait for a request."""

    def __init__(self) -> None:
        self._children: list[int] = []
        self._requests: list[int] = []
        self._answers: list[int] = []
        """Each rank's ends of its two pipes."""

    def ask(self, ranks: int, asked: str, answered: str, errors: str) -> int:
        """The exit code of the first that failed, or of one that a signal ended. All are forked anew after it."""
        if len(self._children) < ranks:
            self.end()
            for rank in range(ranks):
                self._fork(rank)
        request = f"{json.dumps([asked, answered, errors])}\n".encode()
        for one in self._requests[:ranks]:
            os.write(one, request)
        waiting = self._answers[:ranks]
        while waiting:
            for ready in select.select(waiting, [], [])[0]:
                waiting.remove(ready)
                if not os.read(ready, 1):  # it has ended
                    return self._failure(self._children[self._answers.index(ready)])
        return 0

    def end(self) -> None:
        """End all ranks."""
        for child in self._children:
            os.kill(child, signal.SIGKILL)  # whether it has ended or not, it is waited for here
            os.waitpid(child, 0)
        for one in (*self._requests, *self._answers):
            os.close(one)
        for kept in (self._children, self._requests, self._answers):
            kept.clear()

    def _failure(self, first: int) -> int:
        _, status = os.waitpid(first, 0)
        others = [one for one in self._children if one != first]
        code = min(os.waitstatus_to_exitcode(status), *_ended(others), 0) or 1
        self._children.clear()
        self.end()
        return code

    def _fork(self, rank: int) -> None:
        (requests, request), (answers, answer) = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            for one in (request, answers, *self._requests, *self._answers):
                os.close(one)
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}
            _serve(rank, requests, answer)
        os.close(requests)
        os.close(answer)
        self._children.append(child)
        self._requests.append(request)
        self._answers.append(answers)


def _serve(rank: int, requests: int, answer: int) -> NoReturn:
    """Compute what each request asks for; the first that fails ends this rank."""
    code = 1
    try:
        with os.fdopen(requests) as lines:
            for line in lines:
                asked, answered, errors = json.loads(line)
                log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(log, 2)
                os.close(log)
                from support.ranks.process import be

                be(rank, Path(asked), Path(answered))
                os.write(answer, b".")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _ended(children: list[int]) -> list[int]:
    """The exit codes of those that have ended by themselves; 0 of the others, which are killed.

    A rank whose neighbour crashed fails as well, and may be seen first.
    """
    time.sleep(_CRASH_SECONDS)
    codes = []
    for child in children:
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        codes.append(os.waitstatus_to_exitcode(status) if ended else 0)
    return codes


if __name__ == "__main__":
    _main()
