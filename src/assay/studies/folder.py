"""The folder of one study, in `reports/` of the home.

    study.json        the whole plan: every cell with its configuration, and the waves; written before anything runs
    events.jsonl      the news of the study, one line each, from which any process can follow it
    comparison.json   the record: every cell with its result; written whole at the end, or when a study is stopped
    index.html        the page
    lock              locked by the process that runs the study while it is alive

Results of cells are in the folders of their runs. So a study whose process was killed loses none that had ended.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import ConfigDict, ValidationError

from assay.config.home import Home
from assay.config.run import ResolvedRun
from assay.errors import UsageError, count_faults, short_text
from assay.files import open_file, read_file, seal_doubt, seal_file, storage_errors, write_file
from assay.records.events import LogEvent
from assay.records.run import check_possible
from assay.records.study import Cell, ComparisonRecord, Halving, Protocol, Stated
from assay.store.event_log import Event, append, read_log, read_since
from assay.store.processes import is_alive, is_here, is_locked, this_process, try_lock
from assay.store.run_folder import RunProcess

Kind = TypeVar("Kind", "StudyPlan", "ComparisonRecord")

_PROGRESS = ("turn", "cell_phase")
"""Events that only a follower reads; they occur between timed blocks, which must not wait for the disk."""


class StudyPlan(Stated):
    """Everything that a study's execution depends on, fixed before it begins."""

    model_config = ConfigDict(strict=False)

    id: str
    created: str
    """UTC, ISO 8601."""
    kind: str
    title: str
    """Preset or file of the base."""
    base: ResolvedRun
    seeds: tuple[int, ...]
    treatments: tuple[str, ...]
    """Labels of the rows, without the control's."""
    protocol: Protocol
    timeout: float | None = None
    waves: tuple[tuple[Cell, ...], ...]
    """Cells that are alive together; nudged cells follow, each in a wave of its own."""
    executor: str = "local"
    unsealed: str = ""
    """Sentence on `study.json`, if it was read without a digest."""
    halving: Halving | None = None
    """Rungs of a search by successive halving. The waves are those of all rows; most of the later ones never run."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells in the order of execution."""
        return tuple(cell for wave in self.waves for cell in wave)


def new_id() -> str:
    """Name of a new study: its UTC time to the microsecond, by which names sort, and two random hex digits."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond:05x}{secrets.token_hex(1)}"


class StudyFolder:
    """Paths of one study, with methods that read and write its files. Creating the object touches no file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan_file = path / "study.json"
        self.events_file = path / "events.jsonl"
        self.record_file = path / "comparison.json"
        self.page_file = path / "index.html"

    @property
    def id(self) -> str:
        """The study's id, which is the folder's name."""
        return self.path.name

    def write_plan(self, plan: StudyPlan) -> None:
        """Write `study.json`. Raises `StorageError`."""
        write_file(self.plan_file, seal_file(plan.model_dump_json(indent=1)))

    def plan(self) -> StudyPlan | None:
        """Read `study.json`; None for a comparison of an earlier version, which has none. Raises `UsageError`."""
        return self._own(self.plan_file, StudyPlan) if self.plan_file.exists() else None

    def write_record(self, record: ComparisonRecord) -> Path:
        """Write `comparison.json` whole or not at all; returns its path. Raises `StorageError`."""
        write_file(self.record_file, seal_file(record.model_dump_json(indent=1)))
        return self.record_file

    def record(self) -> ComparisonRecord | None:
        """Read `comparison.json`; None if there is none yet. Raises `UsageError` if it cannot be read."""
        return self._own(self.record_file, ComparisonRecord) if self.record_file.exists() else None

    def _own(self, path: Path, kind: type[Kind]) -> Kind:
        """Read a record. Raises `UsageError` also for that of another study."""
        found = _read(path, kind, lambda: self._remedy(path))
        if found.id != self.id:
            raise UsageError(
                f"{path} cannot be read (it is that of the study {short_text(found.id)}); "
                "remove its folder, or name it so"
            )
        return found

    def _remedy(self, path: Path) -> str:
        """Return what to do about a file that cannot be read. A plan and the log of its runs give a new record."""
        if path == self.record_file and self.events_file.exists() and self._has_plan:
            return (
                f"`assay study resume {self.id}` writes it anew from the runs, and trains only those again that are "
                "gone, or that another machine or version made"
            )
        return "remove its folder, or repair the file"

    @property
    def _has_plan(self) -> bool:
        try:
            return self.plan() is not None
        except UsageError:
            return False

    def append(self, event: Event) -> None:
        """Append an event to the log. What a resume needs is flushed to the disk at once. Raises `StorageError`."""
        append(self.events_file, event, flushed=event["event"] not in _PROGRESS)

    def events(self) -> list[LogEvent]:
        """Every whole event, oldest first."""
        return read_log(self.events_file).events

    def events_since(self, offset: int) -> tuple[list[LogEvent], int]:
        """Whole events after `offset` bytes of the log, and the offset from which to read on."""
        return read_since(self.events_file, offset)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from running the study.

        Raises `UsageError` if one runs it already, and `StorageError` if the disk refuses.
        """
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("ab", buffering=0)
        with lock:
            with storage_errors(self.path):
                free = try_lock(lock)
                if free:
                    self._sign(lock)
            if not free:
                raise UsageError(f"another process is running the study {self.id}; wait for it, or stop it")
            yield

    @staticmethod
    def _sign(lock: IO[bytes]) -> None:
        """Write into the lock which process holds it."""
        lock.truncate(0)
        holder = this_process(os.getpid())
        if holder is not None:
            lock.write(seal_file(holder.model_dump_json(indent=1)))

    def holder(self) -> RunProcess | None:
        """Return the process that runs the study now; None if none does, or if it cannot be told."""
        if not self.running:
            return None
        try:
            known = RunProcess.model_validate_json(open_file(read_file(self.path / "lock")))
        except (OSError, ValueError):
            return None
        # A process that has just locked the study has not yet replaced the signature of an earlier one.
        return known if not is_here(known) or is_alive(known) else None

    @property
    def running(self) -> bool:
        """True if a process runs the study now."""
        return is_locked(self.path / "lock")


def folders(home: Home) -> list[StudyFolder]:
    """Return the folders of all studies of a home, oldest first."""
    if not home.reports.is_dir():
        return []
    places = (StudyFolder(path) for path in sorted(home.reports.iterdir()) if not path.name.startswith("."))
    return [one for one in places if one.plan_file.exists() or one.record_file.exists()]


def find(home: Home, name: str) -> StudyFolder:
    """Return the study that a name means: an id, the start of one, a name or title as lists show it, or ``last``.

    The name of a published study means it at any scale.

    Of several studies with one name, the newest is meant. Raises `UsageError`.
    """
    known = folders(home)
    if not known:
        raise UsageError(f"there are no studies in {home.reports} yet; `assay compare` or `assay study run` makes one")
    if name == "last":
        return known[-1]
    found = [one for one in known if one.id == name] or [one for one in known if name and one.id.startswith(name)]
    titles = {} if found or not name else {one.id: _titles(one) for one in known}
    for place in range(3):
        found = found or [one for one in known if one.id in titles and titles[one.id][place] == name][-1:]
    if not found:
        raise UsageError(f"there is no study {name!r} in {home.reports}; `assay study ls` lists them")
    if len(found) > 1:
        ids = ", ".join(one.id for one in found[:3])
        raise UsageError(f"{name!r} is the start of several studies ({ids}); write more of it")
    return found[0]


def _titles(folder: StudyFolder) -> tuple[str, str, str]:
    """Return the name of a study, that without its scale, and its base, by which lists call it without a name."""
    try:
        stated = folder.plan() or folder.record()
    except UsageError:
        return "", "", ""
    return ("", "", "") if stated is None else (stated.name, stated.name.partition(" (")[0], stated.title)


def _read(path: Path, kind: type[Kind], remedy: Callable[[], str]) -> Kind:
    try:
        content = read_file(path)
        found = kind.model_validate_json(open_file(content))
        check_possible(found)
    except (OSError, ValueError) as error:
        reason: Any = count_faults(error.error_count()) if isinstance(error, ValidationError) else error
        raise UsageError(f"{path} cannot be read ({reason}); {remedy()}") from error
    doubt = seal_doubt(path.name, content)
    return found.model_copy(update={"unsealed": doubt}) if doubt else found
