"""The program that ranks are forked from: it imports what they need once, which takes longer than most cases.

It forks as many as each line of its input asks for, and answers with an exit code. A process that tests starts one such
program, which ends with it.
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

_PATIENCE_SECONDS = 900
"""Where cores are busy, ranks wait for each other."""
_CRASH_SECONDS = 0.5
"""A process that crashes closes its connections before it has ended."""


def forked(ranks: int, asked: Path, answered: Path, errors: Path) -> int:
    """Have so many ranks compute what is asked; the exit code of the first that failed."""
    program = _program()
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(json.dumps([ranks, str(asked), str(answered), str(errors)]) + "\n")
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
    for line in sys.stdin:
        ranks, asked, answered, errors = json.loads(line)
        os.write(answer, f"{_fork(ranks, Path(asked), Path(answered), Path(errors))}\n".encode())


def _fork(ranks: int, asked: Path, answered: Path, errors: Path) -> int:
    """The exit code of the first that failed, or of one that a signal ended; the others are not waited for."""
    from support.ranks.process import be

    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
                os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}
                be(rank, asked, answered)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    while children:
        ended, status = os.wait()
        children.remove(ended)
        if code := os.waitstatus_to_exitcode(status):
            return min(code, *_ended(children)) if children else code
    return 0


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
