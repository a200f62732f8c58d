"""One file with the records of runs and studies, to carry them to another home or machine.

The file is a compressed tar archive. It has the folders of runs and studies as they lie in a home, without locks and
without the process that wrote them. Checkpoints are left out unless they are asked for, because they are large. The
corpus is never included: a run whose checkpoint was brought along can be resumed where the same corpus is prepared.

Equal records make equal bytes: names are sorted, and the archive has no dates and no owners. Nothing in an archive is
trusted. Each name must be that of a file in a run or a study. Links, devices and records whose digest does not match
are refused. A folder appears in the home whole or not at all.
"""

import gzip
import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from assay.config.home import Home
from assay.errors import UsageError
from assay.files import new_folder, refused
from assay.store.sealed import open_file

_LEFT_OUT = ("lock", "process.json")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_PIECE = 1 << 20


class Brought(NamedTuple):
    """Folders of an archive, as ``runs/ID`` or ``reports/ID``."""

    new: list[str]
    known: list[str]
    """Folders that were in the home already, with equal records."""


def pack(home: Home, folders: Iterable[Path], path: Path, *, checkpoints: bool = False) -> None:
    """Write the folders of runs and studies into an archive, whole or not at all. Raises `StorageError`."""
    made = path.with_name(f".making-{path.name}")
    try:
        with (
            refused(path),
            made.open("wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as compressed,
        ):
            _fill(cast("IO[bytes]", compressed), home, folders, checkpoints)
        with refused(path):
            made.replace(path)
    finally:
        made.unlink(missing_ok=True)


def _fill(stream: IO[bytes], home: Home, folders: Iterable[Path], checkpoints: bool) -> None:
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for folder in sorted(folders):
            for file in sorted(folder.rglob("*")):
                inside = file.relative_to(folder)
                wanted = inside.parts[0] not in _LEFT_OUT and (checkpoints or inside.parts[0] != "checkpoints")
                if wanted and file.is_file() and not _hidden(inside):
                    entry = tarfile.TarInfo(file.relative_to(home.root).as_posix())
                    entry.size = file.stat().st_size
                    with file.open("rb") as content:
                        archive.addfile(entry, content)


def _hidden(inside: Path) -> bool:
    return any(part.startswith(".") for part in inside.parts)


def unpack(path: Path, home: Home) -> Brought:
    """Bring the folders of an archive into a home.

    All names are checked, and compared with the home, before the first folder is made. A folder that is in the home
    with equal records stays as it is. Raises `UsageError` if the file is no such archive or is damaged, or if the home
    has another record of a run. Raises `StorageError` if the disk refuses.
    """
    names = _names(path)
    known = [folder for folder in names if (home.root / folder).exists()]
    for folder in known:
        _check_same(path, home, folder, names[folder])
    new = [folder for folder in names if folder not in known]
    home.ready()
    for folder in new:
        with new_folder(home.root / folder, same=lambda _: True) as made:
            _extract(path, folder, made)
    return Brought(new, known)


def _names(path: Path) -> dict[str, list[str]]:
    """Return the names of the files in an archive by their folder in the home, both as they are in the archive."""
    names: dict[str, list[str]] = defaultdict(list)
    with _opened(path) as archive:
        # tarfile stops at the end mark, so it does not notice that the checksum of the whole is missing or wrong.
        with gzip.open(path) as whole:
            while whole.read(_PIECE):
                pass
        for member in archive:
            if not member.isreg() or not _possible(member.name):
                raise UsageError(
                    f"{path} is not an archive of runs: {member.name[:200]!r} is no file of a run or study"
                )
            names["/".join(member.name.split("/")[:2])].append(member.name)
    if not names:
        raise UsageError(f"{path} has no runs and no studies")
    return names


def _possible(name: str) -> bool:
    parts = PurePosixPath(name).parts
    kind, depth = parts[0] if parts else "", len(parts)
    return kind in ("runs", "reports") and depth >= 3 and all(_NAME.fullmatch(one) for one in parts)


def _check_same(path: Path, home: Home, folder: str, names: list[str]) -> None:
    """Raise `UsageError` if a record of the archive differs from that of the home."""
    for name in names:
        if not name.endswith(".json"):
            continue
        with _opened(path) as archive:
            file = archive.extractfile(name)
            content = b"" if file is None else file.read()
        there = home.root / name
        if not there.is_file() or there.read_bytes() != content:
            raise UsageError(
                f"{home.root / folder} is here already, and its {PurePosixPath(name).name} differs from the one in "
                f"{path}; remove one of the two, or set ASSAY_HOME to another home"
            )


def _extract(path: Path, folder: str, made: Path) -> None:
    """Write the files of one folder of an archive. Raises `UsageError` if a record is damaged."""
    with _opened(path) as archive:
        for member in archive:
            if not member.name.startswith(f"{folder}/"):
                continue
            place = made / PurePosixPath(member.name).relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            content = cast("IO[bytes]", archive.extractfile(member))
            with place.open("wb") as stream:
                stream.writelines(_pieces(content))
            if place.suffix == ".json" and place.parent == made:
                _check_digest(path, member.name, place)


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    while piece := stream.read(_PIECE):
        yield piece


def _check_digest(path: Path, name: str, place: Path) -> None:
    try:
        open_file(place.read_bytes())
    except ValueError as error:
        raise UsageError(f"{name} in {path} is damaged: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive for reading. Raises `UsageError` if it cannot be read, also within the block."""
    try:
        with path.open("rb") as raw:
            raw.read(1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        with tarfile.open(path, "r:gz") as archive:
            yield archive
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path} is not an archive of runs, or it is cut off ({error})") from error
