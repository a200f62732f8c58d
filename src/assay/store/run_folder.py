"""The folder of one run: its configuration, its event log, its checkpoints and its result.

    run.json        the whole configuration, written by the parent before the child starts
    process.json    the process that measures the run, which decides whether it is still running
    events.jsonl    appended by the child, one line per event, flushed after every line (`log`)
    result.json     written whole at the end; a folder without one is running, or was killed
    earlier/        records of before a resume, until its process has trained a step; if it trains none, they stand
    checkpoints/    step-00000100/…, renamed into place when complete
    worker.log      the child's standard error
    lock            locked by the child while it is alive

A folder is the truth about its run; the store only indexes it. Files that are written once are written whole or not at
all, so no reader ever sees half a file. Records and log lines carry a digest that detects damage (`seal_file`).
"""

import os
import re
import secrets
import shutil
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict, ValidationError

from assay.config.base import Frozen
from assay.config.run import ResolvedRun
from assay.errors import UsageError, count_faults, short_text
from assay.files import (
    open_file,
    open_regular,
    read_file,
    remove_folder,
    seal_doubt,
    seal_file,
    storage_errors,
    write_file,
)
from assay.records.events import LogEvent
from assay.records.prediction import Predicted
from assay.records.run import Branch, RunResult, check_possible
from assay.store.event_log import Log, read_log

Record = TypeVar("Record", bound=Frozen)

_CHECKPOINT = re.compile(r"step-\d{8,}")


class RunSpec(Frozen):
    """`run.json`: the configuration and everything else that the child needs."""

    model_config = ConfigDict(strict=False)

    id: str
    created: str
    """UTC, ISO 8601."""
    identity: str
    preset: str | None = None
    """Preset or file from which the configuration was loaded."""
    config: ResolvedRun
    """Configuration with optimizations normalized and the vocabulary size filled in."""
    data_folder: str
    """Folder of the prepared corpus: relative to the home, or absolute if it is outside it or the record is old."""
    corpus_digest: str | None = None
    """Digest of the prepared tokens; a resumed run must find the same."""
    predicted: Predicted | None = None
    bends: tuple[str, ...] = ()
    """A sentence for each resume that changed the learning rates of the steps to come."""
    branch: Branch | None = None
    """Run and step whose checkpoint was copied here before the child started."""

    @property
    def origin(self) -> tuple[str, ...]:
        """A sentence on the run from which this one branched; nothing if it began with initial weights."""
        said = "branched from the run {one.run} after {one.step} steps, which it did not train itself"
        return () if self.branch is None else (said.format(one=self.branch),)


class RunProcess(Frozen):
    """`process.json`: one process of one host. Its start distinguishes it from a later one with the same number."""

    model_config = ConfigDict(strict=False)

    host: str
    pid: int
    started: float
    """Seconds since the epoch, as psutil's `create_time`; it changes when the host's clock is set."""
    start_ticks: int | None = None
    """Clock ticks from the host's boot to the start, independent of any clock; None on systems without /proc."""
    boot: str | None = None
    """The kernel's id of the host's boot."""


def new_id(identity: str, name: str | None = None) -> str:
    """Make an id such as ``20261121-081500-3fa9c1-7b2e``: UTC time, start of the identity, random digits.

    Ids sort by time and are almost certainly unique. A name given by a user is appended:
    ``20261121-081500-3fa9c1-7b2e-best``.
    """
    made = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{identity[:6]}-{secrets.token_hex(2)}"
    return made if name is None else f"{made}-{name}"


class RunFolder:
    """Paths of one run, with methods that read and write its files. Creating the object touches no file."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self.spec_file = self.path / "run.json"
        self.process_file = self.path / "process.json"
        self.lock_file = self.path / "lock"
        self.events_file = self.path / "events.jsonl"
        self.result_file = self.path / "result.json"
        self.log_file = self.path / "worker.log"
        self.checkpoints = self.path / "checkpoints"
        self.earlier = self.path / "earlier"

    @property
    def id(self) -> str:
        """The run's id, which is the folder's name."""
        return self.path.name

    def prepare(self, spec: RunSpec) -> None:
        """Write `run.json`. That of a resumed run is kept, and its result until `begin`. Raises `StorageError`."""
        if self.spec_file.exists():
            kept = self.earlier / self.spec_file.name
            with storage_errors(self.path):
                write_file(kept, read_file(self.spec_file))
                shutil.copystat(self.spec_file, kept)
        self._write(self.spec_file, spec)

    def begin(self) -> None:
        """Keep an earlier process's result aside; the process that trains the run calls this. Raises `StorageError`."""
        if self.result_file.exists():
            with storage_errors(self.result_file):
                self.earlier.mkdir(exist_ok=True)
                self.result_file.replace(self.earlier / self.result_file.name)

    def trained(self) -> None:
        """Forget what was before a resume, whose process has now trained a step or has finished."""
        shutil.rmtree(self.earlier, ignore_errors=True)

    @property
    def stands(self) -> bool:
        """True while an earlier result stands, because the process that resumed the run has trained no step yet."""
        return (self.earlier / self.result_file.name).exists()

    def restore(self) -> None:
        """Put the records of before a resume back. Raises `StorageError`."""
        with storage_errors(self.path):
            for file in (self.spec_file, self.result_file):
                with suppress(FileNotFoundError):
                    (self.earlier / file.name).replace(file)
        self.trained()

    def spec(self) -> RunSpec:
        """Read `run.json`. Raises `UsageError` if it is missing, cannot be read, or is that of another run."""
        spec = _read(self.spec_file, RunSpec)
        self._check_own(self.spec_file, spec.id)
        return spec

    def data_folder(self, spec: RunSpec) -> Path:
        """Folder of the run's corpus. A copied or moved home uses its own, even for records with an absolute path."""
        home, known = self.path.parent.parent, Path(spec.data_folder)
        moved = home / "data" / known.name
        return moved if known.is_absolute() and moved.is_dir() else home / known

    def write_process(self, process: RunProcess) -> None:
        """Record the process that measures the run. Raises `StorageError`."""
        self._write(self.process_file, process)

    def process(self) -> RunProcess | None:
        """Read `process.json`; None if there is none yet. Raises `UsageError` if it cannot be read."""
        return _read(self.process_file, RunProcess) if self.process_file.exists() else None

    def write_result(self, result: RunResult) -> None:
        """Write `result.json`, whole or not at all. Raises `StorageError`."""
        self._write(self.result_file, result)

    def result(self) -> RunResult | None:
        """Read `result.json`; None if there is none yet. Raises `UsageError` as `spec`."""
        return self.result_and_doubt()[0]

    def result_and_doubt(self) -> tuple[RunResult | None, str]:
        """Read `result.json` and the sentence on its missing digest, which is empty if it has one."""
        if not self.result_file.exists():
            return None, ""
        result, doubt = _read_result(self.result_file)
        self._check_own(self.result_file, result.run)
        return result, doubt

    def doubt(self, path: Path) -> str:
        """Return the sentence on a record of the run that has no digest; empty if it has one. Raises `OSError`."""
        return seal_doubt(path.name, read_file(path))

    def standing(self) -> RunResult:
        """Read the result of before a resume, which stands. Raises `UsageError` if it cannot be read."""
        return _read_result(self.earlier / self.result_file.name)[0]

    def checked(self) -> RunSpec:
        """Read all records of the run, and return the first. Raises `UsageError` if one cannot be read."""
        self.result()
        return self.spec()

    def log(self) -> Log:
        """Read every whole event, and count the damaged lines; a last line cut off by a kill is left out."""
        return read_log(self.events_file)

    def events(self) -> list[LogEvent]:
        """Every whole event, oldest first."""
        return self.log().events

    def newest_checkpoint(self) -> Path | None:
        """The complete checkpoint with the most steps, or None."""
        return max(self.saved_steps().items(), default=(0, None))[1]

    def saved_steps(self) -> dict[int, Path]:
        """Complete checkpoints by their number of steps."""
        found = self.checkpoints.iterdir() if self.checkpoints.is_dir() else ()
        return {int(one.name.partition("-")[2]): one for one in found if _CHECKPOINT.fullmatch(one.name)}

    def adopt_checkpoint(self, place: Path) -> None:
        """Copy a checkpoint of another run, as links where the disk has them. Raises `StorageError`."""

        def linked(source: str, target: str) -> None:
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)

        with storage_errors(self.checkpoints):
            shutil.copytree(place, self.checkpoints / place.name, copy_function=linked)

    def stamp(self) -> int:
        """Modification time of `result.json` in nanoseconds; 0 if there is none."""
        try:
            return self.result_file.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def age_seconds(self) -> float:
        """Seconds since the run was last started or resumed."""
        return _since(self.spec_file)

    def quiet_seconds(self) -> float:
        """Seconds since `run.json`, the event log or the child's log last changed."""
        return min(map(_since, (self.spec_file, self.events_file, self.log_file)))

    def last_words(self) -> str:
        """The last line of the child's standard error, or ``""``."""
        try:
            with open_regular(self.log_file) as stream:
                stream.seek(max(0, self.log_file.stat().st_size - 8192))
                lines = stream.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def check_removable(self) -> None:
        """Raise `UsageError` if the folder is a symbolic link."""
        if self.path.is_symlink():
            target = os.readlink(self.path)
            raise UsageError(f"the run {self.id} is a symbolic link to {target}; delete the link {self.path} yourself")

    def remove(self) -> None:
        """Delete the folder; its name is free at once, even if the deletion is interrupted.

        Raises `UsageError` for a symbolic link, because its target may not belong to assay. Raises `StorageError` if
        the disk refuses.
        """
        self.check_removable()
        with storage_errors(self.path):
            remove_folder(self.path)

    def _check_own(self, path: Path, run: str) -> None:
        """Raise `UsageError` for the record of another run, which would stand under this one's name."""
        if run != self.id:
            raise UsageError(
                f"{path} cannot be read (it is that of the run {short_text(run)}); "
                "remove the run, or name its folder so"
            )

    def _write(self, path: Path, record: Frozen) -> None:
        # pydantic writes a loss that is not finite as null; json would write NaN, which other readers reject
        write_file(path, seal_file(record.model_dump_json(indent=1)))


def _since(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _read_result(path: Path) -> tuple[RunResult, str]:
    """Read a result, and return it with the sentence on a missing digest, which its reason has then as well."""
    result, doubt = _read_with_doubt(path, RunResult)
    if not doubt:
        return result, doubt
    said = f"{result.reason}; {doubt}" if result.reason else doubt
    return result.model_copy(update={"reason": said}), doubt


def _read(path: Path, kind: type[Record]) -> Record:
    return _read_with_doubt(path, kind)[0]


def _read_with_doubt(path: Path, kind: type[Record]) -> tuple[Record, str]:
    """Read a record, and return it with the sentence on a missing digest. Raises `UsageError`."""
    try:
        content = read_file(path)
        found = kind.model_validate_json(open_file(content))
        check_possible(found)
    except (OSError, ValueError) as error:
        reason = count_faults(error.error_count()) if isinstance(error, ValidationError) else str(error)
        reason = error.strerror or reason if isinstance(error, OSError) else reason
        raise UsageError(f"{path} cannot be read ({reason}); remove the run, or repair the file") from error
    return found, seal_doubt(path.name, content)
