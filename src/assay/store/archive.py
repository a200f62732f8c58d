"""One file with the records of runs and studies, to carry them to another home or machine.

The file is a compressed tar archive. It has the folders of runs and studies as they lie in a home, without locks and
without the process that wrote them. Checkpoints are left out unless they are asked for, because they are large. The
corpus is never included: a run whose checkpoint was brought along can be resumed where the same corpus is prepared.

Equal records make equal bytes: names are sorted, and the archive has no dates and no owners. Only files of known names
are taken, here and by `arrivals`, which brings them into another home: none of these names is one of code.

There are two compressions: gzip, and xz for files whose name ends with `.xz`, which are smaller. A reader sees from the
first bytes which of the two it has. An xz file says itself how much memory its decompression takes, so that is limited.
"""

import gzip
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import IO, cast

from assay.config.home import Home
from assay.errors import UsageError
from assay.files import new_file, open_regular

_MOST_MEMORY = 128 << 20
"""Bytes that decompression may take; xz takes 65 MiB at its highest level."""
_MAGIC = b"\xfd7zXZ\x00"
_PIECE = 1 << 16
_TEXT = ({"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0},)
"""Records are text, whose bytes follow from the one before and not from their place among four."""

UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""Errors of a compressed file that is damaged or cut off."""


def is_compressed(path: Path) -> bool:
    """Return whether a file begins as one of the two compressions do."""
    with path.open("rb") as raw:
        return raw.read(len(_MAGIC)).startswith((_MAGIC, b"\x1f\x8b"))


def compress_into(raw: IO[bytes], path: Path) -> IO[bytes]:
    """Return a stream that compresses into another, as the name of the file says. Equal bytes give equal bytes."""
    if path.suffix == ".xz":
        return lzma.LZMAFile(raw, "wb", filters=_TEXT)
    return cast("IO[bytes]", gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0))


def open_compressed(path: Path) -> IO[bytes]:
    """Open a compressed file to be read forward. Reading raises one of `UNREADABLE` if it is damaged."""
    raw = path.open("rb")
    if raw.read(len(_MAGIC)) == _MAGIC:
        raw.seek(0)
        return cast("IO[bytes]", io.BufferedReader(_Xz(raw), _PIECE))
    raw.close()
    return cast("IO[bytes]", gzip.open(path))


class _Xz(io.RawIOBase):
    """The content of one xz stream. `lzma.open` has no limit of memory."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._decoder = raw, lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._decoder.eof:
            content = b""
            if self._decoder.needs_input and not (content := self._raw.read(_PIECE)):
                raise EOFError("it ends before its end marker")
            if found := self._decoder.decompress(content, max_length=len(buffer)):
                buffer[: len(found)] = found
                return len(found)
        if self._decoder.unused_data or self._raw.read(1):
            raise lzma.LZMAError("bytes follow its end")
        return 0

    def close(self) -> None:
        self._raw.close()
        super().close()


_TABLES = r"(rows|cells|losses|memory)\.(csv|parquet)"
_FILES = {
    "runs": re.compile(
        r"(run|result)\.json|events\.jsonl|worker\.log"
        r"|checkpoints/step-\d{8,}/(model\.safetensors|optimizer\.safetensors|state\.json)"
    ),
    "reports": re.compile(
        rf"(study|comparison|answer)\.json|events\.jsonl|index\.html|{_TABLES}|waves/\d{{4,}}\.(cells|jsonl|stop)"
    ),
}
"""Names of files in the folder of a run and of a study, of which an archive may have any."""

_RECORDS = ("study.json", "comparison.json")
"""Files of a study from which all others are made."""


def is_known(kind: str, inside: str) -> bool:
    """True if a folder of `runs` or of `reports` may have a file with this path in it."""
    return kind in _FILES and _FILES[kind].fullmatch(inside) is not None


def pack(home: Home, folders: Iterable[Path], path: Path, *, checkpoints: bool = False, tables: bool = True) -> None:
    """Write the folders of runs and studies into an archive, whole or not at all. Raises `StorageError`.

    Without tables, studies have their records alone, from which their pages and tables are made again. Raises
    `UsageError` if the archive would replace a file that is none.
    """
    if path.exists() and not (path.is_file() and (is_compressed(path) or not path.stat().st_size)):
        raise UsageError(f"{path} is there and is no archive, and would be replaced; name another file")
    with new_file(path) as raw, compress_into(raw, path) as compressed:
        _fill(compressed, home, folders, lambda kind, inside: _wanted(kind, inside, checkpoints, tables))


def _wanted(kind: str, inside: PurePosixPath, checkpoints: bool, tables: bool) -> bool:
    """True if an archive takes a file of a folder."""
    if not is_known(kind, str(inside)):
        return False
    return (checkpoints or inside.parts[0] != "checkpoints") and (
        tables or kind != "reports" or str(inside) in _RECORDS
    )


def _fill(stream: IO[bytes], home: Home, folders: Iterable[Path], wanted: Callable[[str, PurePosixPath], bool]) -> None:
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for folder in sorted(folders):
            for file in sorted(folder.rglob("*")):
                inside = PurePosixPath(file.relative_to(folder))
                if wanted(folder.parent.name, inside) and file.is_file():
                    entry = tarfile.TarInfo(file.relative_to(home.root).as_posix())
                    entry.size = file.stat().st_size
                    with open_regular(file) as content:
                        archive.addfile(entry, content)
