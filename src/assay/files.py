"""Atomic writes: files and folders are made under a hidden name and renamed into place.

A crash leaves at worst a hidden file or folder that nothing reads. Leftovers older than a day are removed when
the next one is made. Two processes that write the same content at once each make their own, and one of the equal
results stays. If a folder replaces another, the old one is renamed away first. For that instant the name is missing;
processes that have the old files mapped keep them.
"""

import errno
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from assay.errors import StorageError, UsageError

DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""Error numbers of an `OSError` that the disk caused, for libraries that both read and write."""

_MAKING = ".making-"
_ASIDE = ".aside-"
_STALE_SECONDS = 24 * 3600


def is_full(error: BaseException | None) -> bool:
    """True if an error means that the disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def refused(place: Path) -> Iterator[None]:
    """Turn every `OSError` of the block into a `StorageError` that names `place`; the block must only write."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{place} could not be written: {error.strerror or error}") from error


def check_target(path: Path, what: str, endings: tuple[str, ...]) -> None:
    """Raise `UsageError` if a file cannot be written for its ending or folder, before its content is computed."""
    if not path.name.endswith(endings):
        raise UsageError(f"the {what} {path.name!r} must end in {' or '.join(endings)}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {str(path.parent)!r} for the {what}; create it or name another")


def write_file(path: Path, content: bytes) -> None:
    """Write a small file atomically, creating its folder. Raises `StorageError`."""
    made = path.with_name(f"{_MAKING}{path.name}-{uuid.uuid4().hex}")
    try:
        with refused(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with made.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            made.replace(path)
    finally:
        made.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path, same: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield an empty folder that is renamed to `folder` if the block succeeds, and removed if it fails.

    If `folder` already exists, it stays if `same(folder)` is true, and is replaced otherwise. Raises `StorageError` if
    the disk cannot be written.
    """
    made = folder.with_name(f"{_MAKING}{folder.name}-{uuid.uuid4().hex}")
    try:
        with refused(folder):
            _sweep(folder.parent)
            made.mkdir(parents=True)
            yield made
            _install(made, folder, same)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _install(made: Path, folder: Path, same: Callable[[Path], bool]) -> None:
    for _ in range(100):
        try:
            made.rename(folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        if same(folder):
            return
        aside = folder.with_name(f"{_ASIDE}{folder.name}-{uuid.uuid4().hex}")
        with suppress(FileNotFoundError):
            folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    raise OSError(errno.EBUSY, "other processes keep replacing it")


def _sweep(parent: Path) -> None:
    """Remove old leftovers of crashes; younger ones may belong to a running process."""
    for prefix in (_MAKING, _ASIDE):
        for left in parent.glob(f"{prefix}*"):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime <= _STALE_SECONDS:
                    continue
                if left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)
