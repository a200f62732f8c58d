"""Open a file for reading, and decompress it if the end of its name says that it is compressed."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from assay.errors import UsageError

COMPRESSED = (".gz", ".zst", ".bz2", ".xz")


def form_of(path: Path) -> str:
    """Return the suffix that tells how a file is read, in lower case: `.jsonl` of ``a.jsonl`` and ``a.jsonl.gz``."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in COMPRESSED else suffix


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
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
    if suffix == ".bz2":
        return bz2.open(path, "rb")
    if suffix == ".xz":
        return lzma.open(path, "rb")
    return _zstandard(path) if suffix == ".zst" else path.open("rb")


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
