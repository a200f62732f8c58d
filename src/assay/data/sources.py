"""Read text from files: a plain file, a folder, a glob, JSON Lines, Parquet.

A file's suffix decides how it is read. `.jsonl` and `.parquet` hold one document per record, in a field of a given
name. Every other file is one document, taken verbatim, and must be UTF-8 without NUL bytes. Folders are read
recursively in the order of their paths, without hidden names and files that are not text. A file that is named, or
matched by a glob, must be text. Documents are joined; a line break is inserted after one that does not end in one.
"""

import glob
import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from assay.config.paths import absolute
from assay.errors import UsageError


def cut_utf8(raw: bytes, limit_bytes: int | None) -> bytes:
    """Return the first `limit_bytes` of UTF-8 text, without an incomplete character at the end."""
    if limit_bytes is None or len(raw) <= limit_bytes:
        return raw
    while limit_bytes and raw[limit_bytes] & 0xC0 == 0x80:
        limit_bytes -= 1
    return raw[:limit_bytes]


def files_at(path: str) -> list[Path]:
    """Return the files of a path, folder or glob, sorted. Raises `UsageError` if there are none."""
    place = absolute(path)
    if os.path.isdir(place):
        found = folder_files(place)
        if not found:
            raise UsageError(f"the folder {path} contains no files; name one with text")
        return found
    if os.path.isfile(place):
        return [place]
    if os.path.lexists(place):
        raise UsageError(f"{path} is not a regular file; name a text file, a folder or a pattern")
    if glob.has_magic(path):
        matches = sorted(Path(match).absolute() for match in glob.glob(str(place), recursive=True))
        found = [match for match in matches if match.is_file()]
        if not found:
            raise UsageError(f"no file matches {path!r}; correct the pattern")
        return found
    raise UsageError(f"there is no file or folder {path!r}; correct the path")


def folder_files(folder: Path, left_out: Collection[str] = ()) -> list[Path]:
    """Return every file below a folder, sorted by relative path, without hidden names and folders in `left_out`."""
    found: list[tuple[str, Path]] = []
    root = folder.absolute()
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in left_out]
        paths = [Path(place, name) for name in names if not name.startswith(".")]
        found += [(path.relative_to(root).as_posix(), path) for path in paths if path.is_file()]
    return [path for _, path in sorted(found)]


def join_documents(documents: Iterable[str], limit_bytes: int | None = None) -> str:
    """Join documents into one text of at most `limit_bytes` of UTF-8; no more documents are read than needed."""
    parts: list[str] = []
    size = 0
    for document in documents:
        if parts and parts[-1] and not parts[-1].endswith("\n"):
            document = "\n" + document
        parts.append(document)
        size += len(document.encode())
        if limit_bytes is not None and size >= limit_bytes:
            return cut_utf8("".join(parts).encode(), limit_bytes).decode()
    return "".join(parts)


def documents(paths: Iterable[Path], text_field: str, *, skip_binary: bool, limit_bytes: int | None) -> Iterator[str]:
    """Yield the documents of files, in order; at most `limit_bytes` of each plain file are read.

    Raises `UsageError` with the file's name if it cannot be read; `skip_binary` skips files that are not text.
    """
    for path in paths:
        try:
            if path.suffix == ".jsonl":
                yield from _json_lines(path, text_field)
            elif path.suffix == ".parquet":
                yield from _parquet(path, text_field)
            elif (text := _plain(path, limit_bytes, skip_binary)) is not None:
                yield text
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror or error}); repair it or leave it out") from error


def _plain(path: Path, limit_bytes: int | None, skip_binary: bool) -> str | None:
    with path.open("rb") as stream:
        # One byte more than the limit shows whether the cut falls inside a character.
        raw = cut_utf8(stream.read(-1 if limit_bytes is None else limit_bytes + 1), limit_bytes)
    try:
        if b"\0" not in raw:
            return raw.decode("utf-8")
        reason = "it contains NUL bytes"
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 at byte {error.start}"
    if skip_binary:
        return None
    raise UsageError(f"{path} is not text: {reason}; convert it to UTF-8 or name another file")


def _json_lines(path: Path, text_field: str) -> Iterator[str]:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield _field(line, text_field, f"{path}, line {number}")


def _field(line: bytes, text_field: str, place: str) -> str:
    try:
        record: Any = json.loads(line)
    except ValueError:
        raise UsageError(f"{place} is not JSON; each line must be one object with the field {text_field!r}") from None
    if not isinstance(record, dict):
        raise UsageError(f"{place} is not a JSON object; each line must be one object with the field {text_field!r}")
    if text_field not in record:
        there = ", ".join(record) or "none"
        raise UsageError(
            f"{place} lacks the field {text_field!r} (it has {there}); name the text field in data.text_field"
        )
    text = record[text_field]
    if not isinstance(text, str) or _half_a_character(text):
        raise UsageError(f"{place}: the field {text_field!r} is not text; name a text field in data.text_field")
    return text


def _half_a_character(text: str) -> bool:
    """True if the text has half a surrogate pair, which JSON escapes can spell and UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _parquet(path: Path, text_field: str) -> Iterator[str]:
    import pyarrow as arrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path)
        if text_field not in table.schema_arrow.names:
            there = ", ".join(table.schema_arrow.names)
            raise UsageError(f"{path} lacks the column {text_field!r} (it has {there}); name it in data.text_field")
        kind = table.schema_arrow.field(text_field).type
        if not (arrow.types.is_string(kind) or arrow.types.is_large_string(kind)):
            raise UsageError(f"{path}: the column {text_field!r} has {kind}, not text; name another in data.text_field")
        for batch in table.iter_batches(columns=[text_field]):
            yield from (text for text in batch.column(0).to_pylist() if text is not None)
    except arrow.ArrowInvalid as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"{path} is not a readable Parquet file: {reason}; write it again") from error
