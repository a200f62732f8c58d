"""The folder of one run: what was asked for, what happened, what came of it.

    run.json        written by the parent, before the child starts: the whole configuration
    process.json    which process measures it: what decides whether it is still running
    events.jsonl    appended by the child, a line an event, flushed at every line (`log`)
    result.json     written whole at the end; a folder without one is running, or was killed; a resumed run keeps the
                    earlier one until its new process has begun
    checkpoints/    step-00000100/…, renamed into place when complete
    worker.log      the child's standard error
    lock            locked by the child for as long as it lives

A folder is the truth about its run; the store only indexes it. Files that are written once are written whole or not at
all, so a reader never sees half of one. Records and log lines carry a digest, which shows damage (`sealed`).
"""

import os
import re
import secrets
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict, ValidationError

from assay.config.base import Frozen
from assay.config.run import Run
from assay.data.atomic import refused, write_file
from assay.errors import UsageError
from assay.runs.log import Event, Log, read_log
from assay.runs.record import Predicted, RunResult
from assay.runs.sealed import open_file, seal_file

Record = TypeVar("Record", bound=Frozen)

_CHECKPOINT = re.compile(r"step-\d{8,}")


class RunSpec(Frozen):
    """`run.json`: what the child needs to know."""

    model_config = ConfigDict(strict=False)

    id: str
    created: str
    """UTC, ISO 8601."""
    identity: str
    preset: str | None = None
    """The preset or file that the configuration began with."""
    config: Run
    """Optimizations normalized, vocabulary size filled in."""
    data_folder: str
    """Where the prepared corpus lies: relative to the home, or absolute where it is elsewhere or the record is old."""
    corpus_digest: str | None = None
    """Of the prepared tokens: a resumed run must find the same."""
    predicted: Predicted | None = None


class Process(Frozen):
    """`process.json`: one process of one host, told apart from a later one with the same number by its start."""

    model_config = ConfigDict(strict=False)

    host: str
    pid: int
    started: float
    """Seconds since the epoch, as psutil's `create_time`; it moves when the host's clock is set."""
    start_ticks: int | None = None
    """Clock ticks from the host's boot to the start, which no clock moves; None where the system has no /proc."""
    boot: str | None = None
    """The kernel's name for the host's boot."""


def new_id(identity: str, name: str | None = None) -> str:
    """``20261121-081500-3fa9c1-7b2e``: sorts by time, shows the configuration, and hardly ever repeats.

    A name that a person gave follows: ``20261121-081500-3fa9c1-7b2e-best``.
    """
    made = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{identity[:6]}-{secrets.token_hex(2)}"
    return made if name is None else f"{made}-{name}"


class RunFolder:
    """The paths of one run, and how its files are read and written. Making one touches nothing."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self.spec_file = self.path / "run.json"
        self.process_file = self.path / "process.json"
        self.lock_file = self.path / "lock"
        self.events_file = self.path / "events.jsonl"
        self.result_file = self.path / "result.json"
        self.log_file = self.path / "worker.log"
        self.checkpoints = self.path / "checkpoints"

    @property
    def id(self) -> str:
        """The run's id is the folder's name."""
        return self.path.name

    def prepare(self, spec: RunSpec) -> None:
        """Write `run.json`. The earlier result of a resumed run stays until `begin`. Raises `StorageError`."""
        self._write(self.spec_file, spec)

    def begin(self) -> None:
        """Take away the result of an earlier process: the process that calls this now does the run."""
        with refused(self.result_file):
            self.result_file.unlink(missing_ok=True)

    def spec(self) -> RunSpec:
        """What was asked for. Raises `UsageError` when `run.json` is missing or cannot be read."""
        return _read(self.spec_file, RunSpec)

    def data_folder(self, spec: RunSpec) -> Path:
        """Where the corpus of the run lies. A home that was copied or moved has its own, also under older records."""
        home, known = self.path.parent.parent, Path(spec.data_folder)
        moved = home / "data" / known.name
        return moved if known.is_absolute() and moved.is_dir() else home / known

    def write_process(self, process: Process) -> None:
        """Say which process measures the run. Raises `StorageError`."""
        self._write(self.process_file, process)

    def process(self) -> Process | None:
        """The process that measures the run; None before there is one."""
        return _read(self.process_file, Process) if self.process_file.exists() else None

    def write_result(self, result: RunResult) -> None:
        """Write `result.json`, whole or not at all. Raises `StorageError`."""
        self._write(self.result_file, result)

    def result(self) -> RunResult | None:
        """How the run ended; None while it has not. Raises `UsageError` when the file cannot be read."""
        return _read(self.result_file, RunResult) if self.result_file.exists() else None

    def log(self) -> Log:
        """Every whole event, and how many lines are damaged; a line torn by a kill is left out."""
        return read_log(self.events_file)

    def events(self) -> list[Event]:
        """Every whole event, oldest first."""
        return self.log().events

    def newest_checkpoint(self) -> Path | None:
        """The complete checkpoint with the most steps behind it."""
        if not self.checkpoints.is_dir():
            return None
        complete = [path for path in self.checkpoints.iterdir() if _CHECKPOINT.fullmatch(path.name)]
        return max(complete, key=lambda path: int(path.name.partition("-")[2]), default=None)

    def stamp(self) -> int:
        """Changes whenever `result.json` does; 0 while there is none."""
        try:
            return self.result_file.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def age_seconds(self) -> float:
        """Time since the run was last asked for."""
        return _since(self.spec_file)

    def quiet_seconds(self) -> float:
        """Time since the run last gave a sign of life."""
        return min(map(_since, (self.spec_file, self.events_file, self.log_file)))

    def last_words(self) -> str:
        """The last line that the child wrote to its standard error, or ``""``."""
        try:
            with self.log_file.open("rb") as stream:
                stream.seek(max(0, self.log_file.stat().st_size - 8192))
                lines = stream.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def check_removable(self) -> None:
        """Raise `UsageError` where the folder is a symbolic link."""
        if self.path.is_symlink():
            target = os.readlink(self.path)
            raise UsageError(f"the run {self.id} is a symbolic link to {target}; delete the link {self.path} yourself")

    def remove(self) -> None:
        """Delete the folder; its name is free at once, even if the deletion is cut short.

        Raises `UsageError` for a symbolic link, since what it points to may not be ours, and `StorageError`.
        """
        self.check_removable()
        doomed = self.path.with_name(f".removed-{self.id}-{os.getpid()}")
        with refused(self.path):
            self.path.rename(doomed)
            shutil.rmtree(doomed)

    def _write(self, path: Path, record: Frozen) -> None:
        # pydantic writes a loss that is not finite as null, where json would write what no other reader accepts
        write_file(path, seal_file(record.model_dump_json(indent=1)))


def _since(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _read(path: Path, kind: type[Record]) -> Record:
    try:
        return kind.model_validate_json(open_file(path.read_bytes()))
    except (OSError, ValueError) as error:
        reason = f"{error.error_count()} findings" if isinstance(error, ValidationError) else str(error)
        reason = error.strerror or reason if isinstance(error, OSError) else reason
        raise UsageError(f"{path} cannot be read ({reason}); remove the run, or put the file right") from error
