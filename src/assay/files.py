"""Whole files: atomic writes, and digests that detect damage.

Files and folders are made under a hidden name and renamed into place. A crash leaves at worst a hidden file or folder
that nothing reads. Its maker holds a lock on it, which ends with the process, so the next command removes what nobody
holds (`sweep`). Two processes that write the same content at once each make their own, and one of the equal results
stays. If a folder replaces another, the old one is renamed away first. For that instant the name is missing; processes
that have the old files mapped keep them.

A JSON file and a line of the log each end with a digest of the preceding content. A flipped bit often leaves valid JSON
with another figure. A record without a digest is older or was changed by hand. It is read, and whatever shows it says
so (`seal_doubt`).
"""

import errno
import glob
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from assay.errors import StorageError, UsageError
from assay.platforms import BINARY, NO_WAITING, hold, lock

_FILE = re.compile(rb',\n "digest": "([0-9a-f]{16})"\n\}\n$')
_FILE_LENGTH = 48
_LINE = re.compile(rb', "crc": "([0-9a-f]{8})"\}')
_LINE_LENGTH = 20


def seal_file(content: str) -> bytes:
    """Add a digest as the last key of a JSON object, which is indented by one space."""
    body = content.removesuffix("\n}").encode()
    return body + f',\n "digest": "{_digest(body)}"\n}}\n'.encode()


def seal_doubt(name: str, content: bytes) -> str:
    """Return the sentence on a JSON file without a digest; empty if it has one."""
    if _FILE.search(content, max(0, len(content) - _FILE_LENGTH)):
        return ""
    return (
        f"not sealed: {name} has no digest, as before version 0.2 or after a change by hand, so damage to its figures "
        "cannot be seen"
    )


def open_file(content: bytes) -> bytes:
    """Remove the digest of a JSON object. Raises `ValueError` if it does not match the content."""
    found = _FILE.search(content, max(0, len(content) - _FILE_LENGTH))
    if found is None:
        return content
    body = content[: found.start()]
    if _digest(body) != found[1].decode():
        raise ValueError("it was changed since it was written; remove its key `digest` if you changed it")
    return body + b"\n}"


def is_sealed_line(line: bytes) -> bool:
    """Return whether a line of a log has a checksum, which may be wrong."""
    return _LINE.fullmatch(line, max(0, len(line) - _LINE_LENGTH)) is not None


def seal_line(line: bytes) -> bytes:
    """Add a checksum as the last key of a JSON object on one line."""
    body = line.removesuffix(b"}\n")
    return body + b', "crc": "%08x"}\n' % zlib.crc32(body)


def open_line(line: bytes) -> bytes:
    """Remove the checksum of a line. Raises `ValueError` if it does not match the content."""
    found = _LINE.fullmatch(line, max(0, len(line) - _LINE_LENGTH))
    if found is None:
        return line
    body = line[: found.start()]
    if zlib.crc32(body) != int(found[1], 16):
        raise ValueError("it was changed since it was written")
    return body + b"}"


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""Error numbers of an `OSError` that the disk caused, for libraries that both read and write."""

_MAKING = ".making-"
_ASIDE = ".aside-"
_REMOVED = ".removed-"
"""Runs that an earlier version of assay was removing."""
_SCRATCH = "assay"
_STALE_SECONDS = 24 * 3600
"""Age from which on a leftover is nobody's where files have no locks."""
_YOUNG_SECONDS = 60.0
"""Age up to which its maker may be about to hold it."""


def is_full(error: BaseException | None) -> bool:
    """True if an error means that the disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def storage_errors(place: Path) -> Iterator[None]:
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
    with new_file(path) as stream:
        stream.write(content)


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a stream to a hidden file, which replaces `path` if the block succeeds, and is removed if it fails.

    Its folder is created. The block must only write. Raises `StorageError`, also for a path that is a device, a pipe
    or a folder, which would be lost.
    """
    if path.exists() and not path.is_file():
        raise StorageError(f"{path} is not a regular file, and would be replaced; name another file")
    made = path.with_name(f"{_MAKING}{path.name}-{uuid.uuid4().hex}")
    try:
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            sweep(path.parent, path.name)
            with made.open("wb") as stream:
                with suppress(OSError):  # a file system without locks: then age decides what is a leftover
                    lock(stream)
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            made.replace(path)
    finally:
        with suppress(OSError):
            made.unlink(missing_ok=True)


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading. Raises `OSError`, also for a pipe, whose reading might never end."""
    number = os.open(path, os.O_RDONLY | BINARY | NO_WAITING)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return open(number, "rb")


def read_file(path: Path) -> bytes:
    """Return the content of a regular file. Raises `OSError` as `open_regular`."""
    with open_regular(path) as stream:
        return stream.read()


@contextmanager
def hidden_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield an empty hidden folder, which is removed at the end of the block; by then it may have been renamed.

    A killed process leaves its folder, and the next one that makes one of this name there removes it. Raises `OSError`.
    """
    sweep(parent, name)
    made = parent / f"{_MAKING}{name}-{uuid.uuid4().hex}"
    made.mkdir()
    try:
        with _held(made):
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """Yield an empty folder in the system's folder of temporary files until the end of the block. Raises `OSError`."""
    parent = Path(tempfile.gettempdir())
    sweep(parent, _SCRATCH)
    with hidden_folder(parent, f"{_SCRATCH}-{name}") as made:
        yield made


@contextmanager
def new_folder(folder: Path, same: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield an empty folder that is renamed to `folder` if the block succeeds, and removed if it fails.

    If `folder` already exists, it stays if `same(folder)` is true, and is replaced otherwise. Raises `StorageError` if
    the disk cannot be written.
    """
    with storage_errors(folder):
        sweep(folder.parent)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with hidden_folder(folder.parent, folder.name) as made:
            yield made
            install(made, folder, same)


def install(made: Path, folder: Path, same: Callable[[Path], bool]) -> None:
    """Rename a folder that is complete; `same` as for `new_folder`. Raises `OSError`."""
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


def remove_folder(folder: Path) -> None:
    """Delete a folder; its name is free at once, and `sweep` finishes what a kill breaks off. Raises `OSError`."""
    doomed = folder.with_name(f"{_ASIDE}{folder.name}-{uuid.uuid4().hex}")
    folder.rename(doomed)
    with _held(doomed):
        shutil.rmtree(doomed)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a folder, so that no other process takes it for a leftover."""
    held = hold(folder)
    try:
        yield
    finally:
        if held is not None:
            os.close(held)


def sweep(parent: Path, name: str = "") -> None:
    """Remove what processes that have ended left in a folder, all of it or what was to become `name`.

    Nothing is younger than a minute, because its maker may be about to hold it. Where files have no locks, it is older
    than a day. A folder that cannot be read or written stays as it is.
    """
    for prefix in (_MAKING, _ASIDE, _REMOVED):
        for left in parent.glob(f"{prefix}{glob.escape(name)}{'-' if name else ''}*"):
            with suppress(OSError):
                age = time.time() - left.lstat().st_mtime
                if age > (_YOUNG_SECONDS if _is_nobodys(left) else _STALE_SECONDS):
                    _remove(left)


def _is_nobodys(left: Path) -> bool:
    """True if no process holds a leftover; false also if that cannot be told."""
    try:
        if left.is_dir():
            held = hold(left)
            if held is not None:
                os.close(held)
            return held is not None
        with left.open("rb+") as file:
            lock(file)
    except OSError:
        return False
    return True


def _remove(left: Path) -> None:
    if left.is_dir() and not left.is_symlink():
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink(missing_ok=True)
