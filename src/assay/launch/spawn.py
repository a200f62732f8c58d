"""Start the measured child of one run, in a folder of its own that is locked for it.

The configuration is written in the folder first. The lock belongs to the open file, so it ends with its last holder,
however that process ends. A parent shares it with the child that it starts. A process that trains the run itself keeps
it. A refused resume changes nothing: the earlier records are restored if no process has begun, and stand until the new
one has trained a step.

The child is a process in a session of its own, so that a terminal's Ctrl-C reaches only the parent. Its standard input
is a pipe that the parent holds open. When the parent ends in any way, the pipe closes and the child ends. The parent
stays small: it imports no torch, and a child inherits only these pipes, its log and the folder's lock.

A child whose steps are not timed may be forked from a server instead, which has imported torch once for many of them.
It has the same pipes, log, lock and environment, and is a process of its own as well.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from assay.config.home import Home
from assay.errors import StorageError, UsageError
from assay.files import storage_errors
from assay.hardware.detect import oom_kills
from assay.launch.child import Child, Process
from assay.launch.forked import ForkServer
from assay.launch.neighbours import RUN_VARIABLE
from assay.launch.prepare import ReadyRun
from assay.optimizations import mesh_of
from assay.platforms import LOCKS_ARE_INHERITED, lock, own_session
from assay.store.index import Store
from assay.store.lookup import find
from assay.store.processes import is_alive, this_process
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder, RunSpec, new_id
from assay.training.learning_rate import describe_bend


@dataclass(frozen=True)
class Claim:
    """A run whose folder is locked against other processes."""

    folder: RunFolder
    spec: RunSpec
    store: Store
    lock: IO[bytes]
    stamp: int
    """Stamp of the result that an earlier process left; 0 if there is none."""


@contextmanager
def claim_folder(ready: ReadyRun, home: Home, resume: RunFolder | None = None) -> Iterator[Claim]:
    """Yield a new folder, or the folder of a stopped run, ready to begin.

    Raises `UsageError` if another process trains the run, and `StorageError` if the disk refuses. If either is raised
    here, or inside before the run has logged an event, a new folder is removed and an old one is unchanged.
    """
    earlier = resume.spec() if resume else None
    folder = resume or _new_folder(home, ready)
    spec = RunSpec(
        id=folder.id,
        created=earlier.created if earlier else datetime.now(UTC).isoformat(timespec="milliseconds"),
        identity=ready.identity,
        preset=earlier.preset if earlier else ready.preset,
        config=ready.run,
        data_folder=_within(home, ready.data_folder),
        corpus_digest=ready.corpus_digest,
        predicted=ready.predicted,
        bends=_bends(resume, earlier, ready),
        branch=earlier.branch if earlier else ready.branch,
    )
    try:
        store = Store(home)
        with _locked(folder) as lock, _put_back(folder):
            store.ingest(begun_result(spec), 0)
            folder.prepare(spec)
            if resume is None and ready.branch is not None:
                folder.adopt_checkpoint(find(home, ready.branch.run).saved_steps()[ready.branch.step])
            yield Claim(folder, spec, store, lock, folder.stamp())
    except (StorageError, UsageError):
        if resume is None and folder.path.exists() and not folder.events_file.exists():
            with suppress(StorageError):
                folder.remove()
                Store(home).remove([folder.id])
        raise


def _bends(resume: RunFolder | None, earlier: RunSpec | None, ready: ReadyRun) -> tuple[str, ...]:
    """Return sentences on the resumes of a run that bent its schedule, this one included."""
    checkpoint = resume.newest_checkpoint() if resume else None
    if earlier is None or checkpoint is None:
        return earlier.bends if earlier else ()
    done = int(checkpoint.name.partition("-")[2])
    said = describe_bend(earlier.config.training, ready.run.training, done)
    return (*earlier.bends, said) if said else earlier.bends


@contextmanager
def _put_back(folder: RunFolder) -> Iterator[None]:
    """Restore earlier records if the block fails before a process has logged an event."""
    said = _length(folder.events_file)
    try:
        yield
    except (StorageError, UsageError):
        if _length(folder.events_file) == said:
            with suppress(StorageError):
                folder.restore()
        raise


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _within(home: Home, folder: Path) -> str:
    """The folder relative to the home, which may be copied or moved; a folder outside the home stays absolute."""
    return folder.relative_to(home.root).as_posix() if folder.is_relative_to(home.root) else str(folder)


def _new_folder(home: Home, ready: ReadyRun) -> RunFolder:
    """Create an empty folder with an unused name: two runs of one configuration may begin in the same second."""
    while True:
        folder = RunFolder(home.runs / new_id(ready.identity, ready.name))
        with storage_errors(folder.path), suppress(FileExistsError):
            folder.path.mkdir(parents=True)
            return folder


@contextmanager
def _locked(folder: RunFolder) -> Iterator[IO[bytes]]:
    """Lock a run's folder, and yield the open lock file. Raises `UsageError` if another process trains the run."""
    with storage_errors(folder.path):
        file = folder.lock_file.open("ab")
    with file:
        try:
            lock(file)
        except BlockingIOError:
            raise _still_running(folder) from None
        if not LOCKS_ARE_INHERITED and (known := folder.process()) is not None and is_alive(known):
            raise _still_running(folder)
        yield file


def _still_running(folder: RunFolder) -> UsageError:
    return UsageError(f"the run {folder.id} is still running; stop it first")


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
