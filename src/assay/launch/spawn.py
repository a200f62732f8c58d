"""Start the measured child of one run, in a folder of its own.

The child is a process in a session of its own, so that a terminal's Ctrl-C reaches only the parent. Its standard input
is a pipe that the parent holds open. When the parent ends in any way, the pipe closes and the child ends. The parent
stays small: it imports no torch, and a child inherits only these pipes, its log and the folder's lock.

A child whose steps are not timed may be forked from a server instead, which has imported torch once for many of them.
It has the same pipes, log, lock and environment, and is a process of its own as well.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

from assay.config.home import Home
from assay.files import storage_errors
from assay.hardware.detect import oom_kills
from assay.launch.child import Child, Process
from assay.launch.forked import ForkServer
from assay.launch.neighbours import RUN_VARIABLE
from assay.launch.prepare import ReadyRun
from assay.launch.run_lock import claim_folder
from assay.optimizations import mesh_of
from assay.platforms import own_session
from assay.store.processes import this_process
from assay.store.run_folder import RunFolder

WORKER = (sys.executable, "-P", "-m", "assay.worker")
AGENT = (sys.executable, "-P", "-m", "assay.worker.processes.agent")
FORK_SERVER = (sys.executable, "-P", "-m", "assay.worker.processes.fork_server")
"""`-P` keeps the current folder off the import path, so that no file there replaces a library."""

_SURROUNDINGS = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONHASHSEED": "0",  # keeps the order of sets, and with it the count of allocations, equal
    "TOKENIZERS_PARALLELISM": "false",  # a forked tokenizer must not warn
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # else a look whether there is a GPU starts CUDA, and no fork could use it
    "PYDANTIC_DISABLE_PLUGINS": "__all__",  # else all installed packages are searched for plugins of pydantic
}
"""Environment of a measured process, in addition to its parent's."""


def start(
    ready: ReadyRun,
    home: Home,
    *,
    turns: int | None = None,
    resume: RunFolder | None = None,
    timeout: float | None = None,
    server: ForkServer | None = None,
    sample: bool = False,
) -> Child:
    """Start a run in a new folder, or resume one in the folder of a stopped run.

    `turns` is the number of timed blocks that wait to be granted; 0 for a cell without times. `timeout`
    limits the seconds in which the child works. A run on one rank is forked from the `server`, if there is one.
    With `sample` it records a short text of its model at the end. Raises `UsageError` if another process trains the
    run, and `StorageError` if the disk or the system refuses. A new folder is then removed, and an old one is
    unchanged.
    """
    with claim_folder(ready, home, resume) as claim:
        arguments = [*(["--turns", str(turns)] if turns is not None else []), *(["--sample"] if sample else [])]
        killed = oom_kills()
        process = _spawn(
            claim.folder, mesh_of(claim.spec.config).size, arguments, claim.lock, environment(home), server
        )
    return Child(
        claim.folder,
        process,
        claim.store,
        in_turns=bool(turns),
        timeout=timeout,
        earlier=claim.stamp,
        oom_kills_before=killed,
    )


def fork_server(home: Home) -> ForkServer:
    """Return the context of a server that forks children of a home in the environment of started ones."""
    return ForkServer(FORK_SERVER, environment(home))


def environment(home: Home) -> dict[str, str]:
    """Return the environment of a measured process."""
    return {**home.environment(), **_SURROUNDINGS}


def _spawn(
    folder: RunFolder,
    ranks: int,
    options: Sequence[str],
    lock: IO[bytes],
    variables: Mapping[str, str],
    server: ForkServer | None,
) -> Process:
    arguments = [str(folder.path), *options]
    with storage_errors(folder.path), folder.log_file.open("ab") as log:
        forked = server.fork(arguments, log, lock) if server is not None and ranks == 1 else None
        process = forked or _started(arguments, ranks, {**variables, RUN_VARIABLE: str(folder.path)}, log, lock)
    try:
        known = this_process(process.pid)
        if known is not None:
            folder.write_process(known)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def _started(
    arguments: Sequence[str], ranks: int, environment: Mapping[str, str], log: IO[bytes], lock: IO[bytes]
) -> "subprocess.Popen[bytes]":
    program = WORKER if ranks == 1 else (*AGENT, "--ranks", str(ranks))
    return subprocess.Popen(
        [*program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
        **own_session(lock),
    )
