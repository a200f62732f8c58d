"""The bytes of a file, decompressed if its name ends so, and the encoding that a byte order mark at its start tells."""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from assay.errors import UsageError

RECORD_FORMS = frozenset((".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow"))
"""Suffixes of files of records."""
COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
_Decompressor = bz2.BZ2Decompressor | lzma.LZMADecompressor
_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {".bz2": bz2.BZ2Decompressor, ".xz": lzma.LZMADecompressor}
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # it begins as the mark of UTF-16 does
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def form_of(path: Path) -> str:
    """Return the suffix that tells how a file is read, in lower case: `.jsonl` of ``a.jsonl`` and ``a.jsonl.gz``."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in COMPRESSED else suffix


@contextmanager
def open_decompressed(path: Path) -> Iterator[IO[bytes]]:
    """Open a file as decompressed bytes. Raises `UsageError` if it cannot be decompressed, `OSError` as `open` does."""
    suffix = path.suffix.lower()
    try:
        with _stream(path, suffix) as stream:
            yield stream
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise _damaged(path, suffix, error) from error
    except OSError as error:
        if suffix not in COMPRESSED or error.errno is not None:
            raise
        raise _damaged(path, suffix, error) from error


def _stream(path: Path, suffix: str) -> IO[bytes]:
    if suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if suffix in _DECOMPRESSORS:
        return io.BufferedReader(_Decompressed(path, _DECOMPRESSORS[suffix]))
    return _zstandard(path) if suffix == ".zst" else path.open("rb")


class _Decompressed(io.RawIOBase):
    """Decompresses a file of one stream or several. What follows and is none is a fault; Python's readers drop it."""

    def __init__(self, path: Path, new: Callable[[], _Decompressor]) -> None:
        self._file, self._new, self._stream = path.open("rb"), new, new()

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as a part of the file goes; 0 at the end. Raises `EOFError` if a stream is cut off."""
        found = b""
        while not found:
            part = self._next_part()
            if part is None:
                return 0
            found = self._stream.decompress(part, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def _next_part(self) -> bytes | None:
        """Return what the stream needs; a new one follows one that has ended. None at the end of the file."""
        ended, part = self._stream.eof, self._stream.unused_data
        if not ended and not self._stream.needs_input:
            return b""
        while not (part := part.lstrip(b"\0") if ended else part):  # streams may be padded
            part = self._file.read(io.DEFAULT_BUFFER_SIZE)
            if not part:
                if self._file.tell() and not ended:
                    raise EOFError("the file ends within a stream")
                return None
        if ended:
            self._stream = self._new()
        return part

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def _zstandard(path: Path) -> IO[bytes]:
    import pyarrow as arrow

    if not arrow.Codec.is_available("zstd"):
        raise UsageError(
            f"this build of pyarrow cannot read {path}; run pip install --upgrade pyarrow, or decompress it"
        )
    return io.BufferedReader(arrow.input_stream(str(path), compression="zstd"))


def _damaged(path: Path, suffix: str, error: Exception) -> UsageError:
    reason = str(error).split("\n")[0] or type(error).__name__
    return UsageError(f"{path} cannot be decompressed as {suffix}: {reason}; write it again or leave it out")


def marked_encoding(start: bytes) -> str | None:
    """Return UTF-16 or UTF-32 if a file begins with its mark and goes on as such text; None if it does not.

    `start` may end within a character.
    """
    found = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    if found is None:
        return None
    try:
        text = codecs.getincrementaldecoder(found)().decode(start)
    except UnicodeError:
        return None
    return None if not text or "\0" in text else found
