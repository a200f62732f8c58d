"""Checkpoints on disk: one folder that all ranks write, its durability, its digests, and the errors of a full disk."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from assay.errors import StorageError
from assay.files import is_full, new_folder, storage_errors
from assay.parallel.process_rank import Ranks


@contextmanager
def written_by_all(place: Path, ranks: Ranks) -> Iterator[Path]:
    """Yield the hidden folder that rank 0 makes, and that it renames when every rank has written its part."""
    if ranks.rank == 0:
        with new_folder(place, lambda _: False) as made:
            ranks.gather(str(made))
            yield made
            ranks.meet()
    else:
        made = Path(ranks.gather("")[0])
        with storage_errors(place):
            yield made
        ranks.meet()
    ranks.meet()


def digests(paths: Sequence[Path]) -> dict[str, str]:
    """Return the SHA-256 of files by their names, in hexadecimal; files are read side by side."""
    with ThreadPoolExecutor(max(1, len(paths))) as pool:
        return {path.name: found for path, found in zip(paths, pool.map(_digest, paths), strict=True)}


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def naming_the_cause(place: Path) -> Iterator[None]:
    """Turn the errors of a full disk, also those of safetensors, into one `StorageError` that names the cause."""
    from safetensors import SafetensorError

    try:
        yield
    except StorageError as error:
        raise _full(place, error) if is_full(error.__cause__) else error from error.__cause__
    except SafetensorError as error:
        if "os error 28" in str(error):
            raise _full(place, error) from error
        raise StorageError(f"{place} could not be written: {error}") from error


def _full(place: Path, error: Exception) -> StorageError:
    return StorageError(f"the disk is full: {place.name} could not be written; free some space and resume the run")


def flush_folder(folder: Path) -> None:
    """Make a rename durable, if the file system can flush folders."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
