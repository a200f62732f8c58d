"""Read text from files: a plain file, a folder, a glob, files of records, a data set that was saved.

A file's suffix decides how it is read, and `.gz`, `.zst`, `.bz2` or `.xz` behind it is decompressed. `.jsonl`,
`.json`, `.csv`, `.tsv`, `.parquet` and `.arrow` hold one document per record, in a field of a given name. Every other
file is one document, taken verbatim, and must be text in the given encoding without NUL bytes. Folders are read
recursively in the order of their paths, without hidden names. What of a folder is not text is left out and counted. A
file that is named, or matched by a glob, must be text. Documents are joined; a line break is inserted after one that
does not end in one.

A data set that `datasets` saved with several splits has a folder for each. Its data are Arrow streams, which need
pyarrow and not `datasets`.
"""

import codecs
import glob
import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from assay.config.base import absolute
from assay.data.compressed import form_of, marked_encoding, open_decompressed
from assay.data.records import FORMS, NoRecords, ReadingRules, record_texts
from assay.data.tally import (
    CARRIAGE_RETURNS,
    HIDDEN,
    MARKED,
    METADATA,
    NOT_REGULAR,
    Reason,
    Tally,
)
from assay.errors import UsageError

_METADATA = {"dataset_info.json", "state.json", "dataset_dict.json"}
"""Files that `datasets` writes beside the data of `save_to_disk`."""
_CACHE = "cache-"
"""Start of the name of a file that `datasets` keeps beside them for itself."""
_BINARY = Reason("with NUL bytes, so no text")
_SPLITS = "dataset_dict.json"
_VALIDATION = ("validation", "valid", "val", "dev")


def cut_utf8(raw: bytes, limit_bytes: int | None) -> bytes:
    """Return the first `limit_bytes` of UTF-8 text, without an incomplete character at the end."""
    if limit_bytes is None or len(raw) <= limit_bytes:
        return raw
    while limit_bytes and raw[limit_bytes] & 0xC0 == 0x80:
        limit_bytes -= 1
    return raw[:limit_bytes]


def files_at(path: str, tally: Tally) -> list[Path]:
    """Return the files of a path, folder or glob, sorted; names of a folder that are left out go to the tally.

    Raises `UsageError` if there are none.
    """
    place = absolute(path)
    if os.path.isdir(place):
        found = folder_files(place, tally)
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


def folder_files(folder: Path, tally: Tally, left_out: Collection[str] = ()) -> list[Path]:
    """Return every file below a folder, sorted by relative path, without folders in `left_out`.

    Hidden names, and metadata beside a data set that `datasets` saved, go to the tally.
    """
    found: list[tuple[str, Path]] = []
    root = folder.absolute()
    for place, folders, names in os.walk(root):
        for hidden in sorted(name for name in (*folders, *names) if name.startswith(".")):
            tally.add(HIDDEN, Path(place, hidden))
        folders[:] = [name for name in folders if not name.startswith(".") and name not in left_out]
        saved = _METADATA & set(names) if any(name.endswith(".arrow") for name in names) else set()
        for path in sorted(Path(place, name) for name in names if not name.startswith(".")):
            if not path.is_file():
                tally.add(NOT_REGULAR, path)
            elif path.name in saved or (saved and path.name.startswith(_CACHE)):
                tally.add_files(METADATA, [path])
            else:
                found.append((path.relative_to(root).as_posix(), path))
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


def documents(paths: Iterable[Path], reading: ReadingRules, tally: Tally) -> Iterator[str]:
    """Yield the documents of files, in order; what is left out is added to the tally.

    Raises `UsageError` with the file's name if it cannot be read; a lenient reading leaves out files that are not text.
    """
    for path in paths:
        try:
            yield from _documents_of(path, reading, tally)
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror or error}); repair it or leave it out") from error


def _documents_of(path: Path, reading: ReadingRules, tally: Tally) -> Iterator[str]:
    if form_of(path) in FORMS:
        try:
            yield from record_texts(path, reading, tally)
            return
        except NoRecords as error:
            if not reading.lenient:
                raise UsageError(
                    f"{path} has no records: {error}; name its text field in data.text_field, or rename it to .txt to"
                    " train on it as it is"
                ) from None
            tally.add(_syntax(path, reading), path, path.stat().st_size)
    if (text := _plain(path, reading, tally)) is not None:
        yield text


def _syntax(path: Path, reading: ReadingRules) -> Reason:
    return Reason(
        f"{form_of(path)} without records that have {reading.text_field!r}, read as plain text", "read as it is"
    )


def _plain(path: Path, reading: ReadingRules, tally: Tally) -> str | None:
    """Return a file's text; None if it is left out. Carriage returns and a byte order mark are kept, and counted."""
    limit, name = reading.limit_bytes, reading.encoding.upper()
    most = -1
    if limit is not None:  # a character has at most four bytes, and in UTF-8 a byte of text is one of the file
        most = 4 + (limit if reading.encoding == "utf-8" else 4 * limit)
    with open_decompressed(path) as stream:
        raw = stream.read(most)
    at = ""
    try:
        text = codecs.getincrementaldecoder(reading.encoding)().decode(raw, final=len(raw) != most)
        if "\0" not in text:
            _remark(text, path, tally)
            return cut_utf8(text.encode(), limit).decode()
    except UnicodeError as error:
        at = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
    binary, marked = b"\0" in raw, marked_encoding(raw)
    if not reading.lenient:
        if marked:
            raise UsageError(f"{path} is {marked} by its byte order mark, not {name}; set data.encoding={marked}")
        fault = "it contains NUL bytes" if binary else f"it is not {name}{at}"
        raise UsageError(f"{path} is not text: {fault}; set data.encoding, or name another file")
    reason = _BINARY if binary else Reason(f"not {name}; data.encoding names another encoding")
    if marked:
        reason = Reason(f"{marked} by the byte order mark, not {name}; data.encoding={marked} reads it")
    tally.add(reason, path, path.stat().st_size)
    return None


def _remark(text: str, path: Path, tally: Tally) -> None:
    """Count a file whose line ends or first character other programs read in another way."""
    if "\r" in text:
        tally.add(CARRIAGE_RETURNS, path, path.stat().st_size)
    if text.startswith("\ufeff"):
        tally.add(MARKED, path, path.stat().st_size)


def saved_splits(folder: Path) -> dict[str, Path]:
    """Return the folder of each split, by its name here: `train`, `validation` or `test`, or else its own name.

    Empty if the folder is no such data set. Raises `UsageError` if its list of splits is damaged or has no `train`.
    """
    try:
        names = json.loads((folder / _SPLITS).read_bytes())["splits"]
        found = {str(name): folder / str(name) for name in names}
    except OSError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / _SPLITS} is damaged; save the data set again") from error
    if "train" not in found:
        there = ", ".join(found) or "none"
        raise UsageError(f"{folder} is a data set without a split 'train' (it has {there}); name the folder of a split")
    validation = next((name for name in _VALIDATION if name in found), None)
    return {"validation" if name == validation else name: place for name, place in found.items()}
