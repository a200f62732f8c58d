"""Bring the runs and studies of an archive into a home. Nothing in an archive is trusted.

It is read once, into hidden folders beside those of the home. Only files of known names are taken; links and devices
are refused. Each record must be whole. It must be that of the run or study whose name its folder has, or it would stand
under the name of another. A folder that the home has already must have equal records. When all is found right, the
folders are renamed into place, each whole or not at all.

A small archive may come to many bytes. So a record is limited by `LONGEST_RECORD`, and the whole by the bytes of the
archive and by the room on the disk.
"""

import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from assay.config.home import Home
from assay.config.model import ModelConfig
from assay.errors import UsageError
from assay.files import hidden_folder, install, read_file, storage_errors
from assay.store.archive import UNREADABLE, is_known, open_compressed
from assay.store.foreign import remember
from assay.store.result import contradiction
from assay.store.run_folder import RunFolder, RunSpec
from assay.units import format_bytes

LONGEST_RECORD = 64 << 20
"""Most bytes of a file that is read at once: a record, or the description of an entry."""
_LEAST_LIMIT, _MOST_TIMES = 64 << 20, 100
"""Bytes that any archive may come to, and how many times its own; text of records is compressed to a tenth."""
_MOST_FILES = 200_000
_PIECE = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

Judge = Callable[[Path], Iterable[ModelConfig]]
"""Returns the models of a study's folder. Raises `UsageError` if a record is damaged, or that of another study."""


class Brought(NamedTuple):
    """Folders of an archive, as ``runs/ID`` or ``reports/ID``."""

    new: list[str]
    known: list[str]
    """Folders that were in the home already, with equal records."""
    left: Sequence[str] = ()
    """Files that were not taken, because no run and no study has one of their name."""


def unpack(path: Path, home: Home, judge_study: Judge) -> Brought:
    """Bring the folders of an archive into a home; a folder that is in the home with equal records stays as it is.

    Nothing is new before all of the archive was read and judged. Raises `UsageError` if the file is no such archive, is
    damaged or comes to too much. It is also raised if the home has another record of a run, and `StorageError` if the
    disk refuses.
    """
    with _opened(path), storage_errors(home.root), ExitStack() as hidden:
        arriving = _Arriving(path, home, hidden)
        with _Bounded(path, home) as stream, tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r:") as archive:
            for member in _members(path, archive):
                arriving.take(member, cast("IO[bytes]", archive.extractfile(member)))
            stream.finish()
        return arriving.placed(judge_study)


class _Arriving:
    """Folders that are being made from an archive, in hidden ones beside those of the home."""

    def __init__(self, path: Path, home: Home, hidden: ExitStack) -> None:
        self._path, self._home, self._stack = path, home, hidden
        self._hidden: dict[str, Path] = {}
        self._new: dict[str, Path] = {}
        self._known: dict[str, None] = {}
        self._left: list[str] = []
        self._seen: set[str] = set()

    def take(self, member: tarfile.TarInfo, content: IO[bytes]) -> None:
        """Take one file, or compare it with that of the home."""
        kind, run, *inside = PurePosixPath(member.name).parts
        if not is_known(kind, "/".join(inside)):
            self._left.append(member.name)
            return
        if member.name in self._seen:
            raise _refused(self._path, f"it has {member.name} twice")
        self._seen.add(member.name)
        folder = f"{kind}/{run}"
        if folder not in self._new and folder not in self._known:
            self._begin(folder)
        if folder in self._new:
            _write(self._new[folder].joinpath(*inside), content)
        elif member.name.endswith(".json"):
            self._check_same(folder, member, content)

    def _begin(self, folder: str) -> None:
        if (self._home.root / folder).exists():
            self._known[folder] = None
            return
        kind, name = folder.split("/")
        if kind not in self._hidden:
            self._home.ready()
            self._hidden[kind] = self._stack.enter_context(hidden_folder(self._home.root / kind, "import"))
        self._new[folder] = self._hidden[kind] / name

    def _check_same(self, folder: str, member: tarfile.TarInfo, content: IO[bytes]) -> None:
        """Raise `UsageError` if a record of the archive differs from that of the home."""
        there = self._home.root / member.name
        same = there.is_file() and there.stat().st_size == member.size <= LONGEST_RECORD
        if not same or read_file(there) != content.read():
            raise UsageError(
                f"{self._home.root / folder} is here already, and its {there.name} differs from the one in "
                f"{self._path}; remove one of the two, or set ASSAY_HOME to another home"
            )

    def placed(self, judge_study: Judge) -> Brought:
        """Judge the new folders, note whose code they would run, and give them their names."""
        if not self._new and not self._known:
            raise UsageError(f"{self._path} has no runs and no studies")
        judged = [self._judged(folder, made, judge_study) for folder, made in self._new.items()]
        remember(self._home, chain.from_iterable(judged))
        for folder, made in self._new.items():
            install(made, self._home.root / folder, same=lambda _: True)
        return Brought(list(self._new), list(self._known), self._left)

    def _judged(self, folder: str, made: Path, judge_study: Judge) -> Iterable[ModelConfig]:
        """Return the models that a folder's records name. Raises `UsageError` if one is damaged, or of another name."""
        try:
            return judge_study(made) if folder.startswith("reports/") else [_judged_run(RunFolder(made)).config.model]
        except UsageError as error:
            reason = str(error).replace(str(made), folder).partition(";")[0]
            raise UsageError(f"{self._path} cannot be taken: {reason}") from error


def _judged_run(folder: RunFolder) -> RunSpec:
    """Return the first record of a run. Raises `UsageError` if a record is damaged, or contradicts another."""
    spec = folder.checked()
    if fault := contradiction(folder):
        raise UsageError(f"{folder.path} is not the record of one run: {fault}")
    return spec


class _Bounded:
    """The bytes of a compressed file, read forward, up to a limit. Raises `UsageError` beyond it."""

    def __init__(self, path: Path, home: Home) -> None:
        self._path = path
        self._stream, self._place = open_compressed(path), 0
        place = next(one for one in (home.root, *home.root.parents) if one.exists())
        self._limit = min(max(_LEAST_LIMIT, _MOST_TIMES * path.stat().st_size), shutil.disk_usage(place).free)

    def __enter__(self) -> "_Bounded":
        return self

    def __exit__(self, *given: object) -> None:
        self._stream.close()

    def tell(self) -> int:
        return self._place

    def seek(self, place: int) -> int:
        if place < self.tell():
            raise tarfile.ReadError("its entries are not in order")
        while (missing := place - self.tell()) > 0 and self.read(min(missing, _PIECE)):
            pass
        return self.tell()

    def read(self, count: int) -> bytes:
        if count > LONGEST_RECORD:
            raise _refused(self._path, f"an entry's description has more than {format_bytes(LONGEST_RECORD)}")
        if self.tell() + count > self._limit + _PIECE:
            most = format_bytes(self._limit)
            raise _refused(
                self._path, f"it comes to more than {most}, the most for an archive of its size and for this disk"
            )
        try:
            content = self._stream.read(count)
        except UNREADABLE as error:
            raise tarfile.ReadError(str(error)) from error
        self._place += len(content)
        return content

    def finish(self) -> None:
        """Read to the end: the checksum of the whole is there, and `tarfile` stops before it."""
        while self.read(_PIECE):
            pass


def _members(path: Path, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the entries of an archive. Raises `UsageError` if one is no file of a run or study."""
    count = 0
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # or all descriptions stay in memory
        count += 1
        if count > _MOST_FILES:
            raise _refused(path, f"it has more than {_MOST_FILES:,} files")
        if member.isdir():  # of an archive that somebody unpacked and packed again
            continue
        if not member.isreg() or member.issparse() or not _possible(member.name):
            raise _refused(path, f"{member.name[:200]!r} is no file of a run or study")
        yield member


def _possible(name: str) -> bool:
    parts = PurePosixPath(name).parts
    kind, depth = parts[0] if parts else "", len(parts)
    return kind in ("runs", "reports") and depth >= 3 and all(_NAME.fullmatch(one) for one in parts)


def _write(place: Path, content: IO[bytes]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as stream:
        while piece := content.read(_PIECE):
            stream.write(piece)


def _refused(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path} is not an archive of runs: {reason}")


@contextmanager
def _opened(path: Path) -> Iterator[None]:
    """Turn the errors of an archive that cannot be read into `UsageError`."""
    try:
        with path.open("rb") as raw:
            raw.read(1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        yield
    except (tarfile.TarError, ValueError) as error:
        raise UsageError(f"{path} is not an archive of runs, or it is cut off ({error})") from error
