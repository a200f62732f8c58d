"""The two compressions of an archive: gzip, and xz for files whose name ends with `.xz`, which are smaller.

A reader sees from the first bytes which of the two it has. An xz file says itself how much memory its decompression
takes, so that is limited.
"""

import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import IO, cast

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
