"""Files of records: JSON Lines, JSON arrays, tables with commas or tabs, Parquet, and Arrow as `datasets` saves it.

One field of a record holds the text of one document. A record whose text is null has none, in every form. A faulty
record is named by its number.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.data.compressed import COMPRESSED, form_of, marked_encoding, open_decompressed
from assay.data.corpora import CARRIAGE_RETURNS_OF_RECORDS, NULL, Tally
from assay.errors import UsageError

_LARGEST_CELL = 2**31 - 1
_BEGINNING_BYTES = 2**10
_SEPARATORS = {".tsv": "\t,;", ".csv": ",;\t"}
"""Separators of each form, the usual one first: spreadsheets write semicolons where a comma is the decimal point."""


@dataclass(frozen=True)
class ReadingRules:
    """Settings for reading files."""

    text_field: str = "text"
    """Field of a record that holds its text."""
    encoding: str = "utf-8"
    lenient: bool = False
    """True if a file that is not what its name says is counted, as in a folder, and not refused."""
    limit_bytes: int | None = None
    """Most bytes of UTF-8 of a plain file; None: all."""


class NoRecords(Exception):
    """A file of text that holds no records with the text field. The message ends a sentence on the file."""


def record_texts(path: Path, reading: ReadingRules, tally: Tally) -> Iterator[str]:
    """Return the texts of a file of records.

    Raises `NoRecords` before the first text if the file is JSON or a table without the field, and `UsageError` for a
    faulty record.
    """
    found = _READERS[form_of(path)](path, reading)
    return _tallied(found, path, tally)


def _tallied(found: Iterable[str | None], path: Path, tally: Tally) -> Iterator[str]:
    for number, text in enumerate(found, start=1):
        if text is None:
            tally.add(NULL, f"{path}, record {number}")
            continue
        if "\r" in text:
            tally.add(CARRIAGE_RETURNS_OF_RECORDS, f"{path}, record {number}")
        yield text


def _lines(path: Path, reading: ReadingRules) -> Iterator[str | None]:
    with _decoded(path, reading) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield _field(_parsed(line, reading, f"{path}, line {number}"), reading, f"{path}, line {number}")


def _parsed(line: str, reading: ReadingRules, place: str) -> Any:
    wanted = f"each line must be one object with the field {reading.text_field!r}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError(f"{place} is not JSON; {wanted}") from None
    if not isinstance(record, dict):
        raise UsageError(f"{place} is not a JSON object; {wanted}")
    return record


def _field(record: dict[str, Any], reading: ReadingRules, place: str) -> str | None:
    name = reading.text_field
    if name not in record:
        raise UsageError(
            f"{place} lacks the field {name!r} (it has {_listed(record)}); name the text field in data.text_field"
        )
    text = record[name]
    if text is not None and not isinstance(text, str):
        raise UsageError(f"{place}: the field {name!r} is not text; name a text field in data.text_field")
    if text is not None and _half_a_character(text):
        raise UsageError(
            f"{place}: the field {name!r} has half a surrogate pair, which is no character; write it again"
        )
    return text


def _half_a_character(text: str) -> bool:
    """True if the text has half a surrogate pair, which JSON escapes can spell and UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _array(path: Path, reading: ReadingRules) -> Iterator[str | None]:
    """Return the texts of a JSON array of objects or of texts, of one object, or of JSON Lines that are named .json."""
    with _decoded(path, reading) as stream:
        content = stream.read()
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        if not _begins_as_lines(content):
            raise NoRecords(f"it is not JSON ({error})") from None
        return _lines(path, reading)
    records = [value] if isinstance(value, dict) else value
    if not isinstance(records, list) or not _holds_text(_first(records), reading):
        raise NoRecords(f"it has no field {reading.text_field!r} ({_described(value)})")
    return (_entry(one, reading, f"{path}, record {number}") for number, one in enumerate(records, start=1))


def _begins_as_lines(content: str) -> bool:
    try:
        return isinstance(json.loads(content.lstrip().split("\n", 1)[0]), dict)
    except (ValueError, RecursionError):
        return False


def _first(records: list[Any]) -> Any:
    """Return the first record that is not null; None if all are."""
    return next((record for record in records if record is not None), None)


def _holds_text(record: Any, reading: ReadingRules) -> bool:
    return record is None or isinstance(record, str) or (isinstance(record, dict) and reading.text_field in record)


def _described(value: Any) -> str:
    if isinstance(value, list) and isinstance(first := _first(value), dict):
        return f"its first record has {_listed(first)}"
    return f"it is one object with {_listed(value)}" if isinstance(value, dict) else "it is no array of records"


def _entry(record: Any, reading: ReadingRules, place: str) -> str | None:
    if isinstance(record, dict):
        return _field(record, reading, place)
    return _field({reading.text_field: record}, reading, place)


def _table(path: Path, reading: ReadingRules) -> Iterator[str | None]:
    separator = _separator(path, reading)
    rows = _rows(path, reading, separator)
    header = next(rows, [])
    _check_one_column(header, path, reading)
    return _column(rows, header, header.index(reading.text_field), path)


def _separator(path: Path, reading: ReadingRules) -> str:
    """Return the separator by which a table has the text field. Raises `NoRecords` if it has none by any of them."""
    separators, headers = _SEPARATORS[form_of(path)], list[list[str]]()
    for one in separators:
        with suppress(UsageError):  # a header with quotes is no row by another separator
            headers.append(next(_rows(path, reading, one), []))
            if reading.text_field in headers[-1]:
                return one
    header = max(headers, key=len) if headers else next(_rows(path, reading, separators[0]))
    raise NoRecords(f"it has no column {reading.text_field!r} (it has {_listed(header)})")


def _column(rows: Iterator[list[str]], header: list[str], column: int, path: Path) -> Iterator[str]:
    for number, row in enumerate(rows, start=2):
        if row and len(row) != len(header):
            raise UsageError(
                f"{path}, row {number} has {len(row)} columns and the header {len(header)}; "
                "quote fields that contain the separator"
            )
        if row:
            yield row[column]


def _rows(path: Path, reading: ReadingRules, separator: str) -> Iterator[list[str]]:
    csv.field_size_limit(_LARGEST_CELL)
    with _decoded(path, reading) as stream:
        found = csv.reader(stream, delimiter=separator, strict=True)
        try:
            yield from found
        except csv.Error as error:
            raise UsageError(
                f"{path}, line {found.line_num} is not a row of a table: {error}; quote its fields"
            ) from error


def _parquet(path: Path, reading: ReadingRules) -> Iterator[str | None]:
    from pyarrow import BufferReader, parquet

    with _readable(path, "Parquet"):
        file = parquet.ParquetFile(BufferReader(_whole(path)) if path.suffix.lower() in COMPRESSED else path)
        _check_column(file.schema_arrow, path, reading)
        for batch in file.iter_batches(columns=[reading.text_field]):
            yield from batch.column(0).to_pylist()


def _arrow(path: Path, reading: ReadingRules) -> Iterator[str | None]:
    """Return the texts of an Arrow stream, which `datasets` writes, or of an Arrow file."""
    from pyarrow import ArrowInvalid, BufferReader, ipc, memory_map

    with _readable(path, "Arrow"):
        source = BufferReader(_whole(path)) if path.suffix.lower() in COMPRESSED else memory_map(str(path))
        with source:
            try:
                batches: Iterable[Any] = ipc.open_stream(source)
                schema = batches.schema  # type: ignore[attr-defined]
            except ArrowInvalid:
                file = ipc.open_file(source)
                batches, schema = (file.get_batch(number) for number in range(file.num_record_batches)), file.schema
            _check_column(schema, path, reading)
            for batch in batches:
                yield from batch.column(reading.text_field).to_pylist()


def _check_column(schema: Any, path: Path, reading: ReadingRules) -> None:
    name = reading.text_field
    if name not in schema.names:
        raise UsageError(
            f"{path} lacks the column {name!r} (it has {_listed(schema.names)}); name it in data.text_field"
        )
    _check_one_column(schema.names, path, reading)
    kind = schema.field(name).type
    if not _holds_strings(kind):
        raise UsageError(f"{path}: the column {name!r} has {kind}, not text; name another in data.text_field")


def _check_one_column(names: Sequence[str], path: Path, reading: ReadingRules) -> None:
    count = names.count(reading.text_field)
    if count > 1:
        raise UsageError(f"{path} has {count} columns {reading.text_field!r}; rename all but the one to read")


def _holds_strings(kind: Any) -> bool:
    """True for a column of strings of any width, also for one that stores each different string once."""
    from pyarrow import types

    plain = kind.value_type if types.is_dictionary(kind) else kind
    return any(is_one(plain) for is_one in (types.is_string, types.is_large_string, types.is_string_view))


def _whole(path: Path) -> bytes:
    with open_decompressed(path) as stream:
        return stream.read()


@contextmanager
def _readable(path: Path, form: str) -> Iterator[None]:
    """Raise `UsageError` for what pyarrow cannot read, also for texts that are not UTF-8."""
    from pyarrow import ArrowInvalid

    try:
        yield
    except (ArrowInvalid, UnicodeDecodeError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"{path} is not a readable {form} file: {reason}; write it again") from error


@contextmanager
def _decoded(path: Path, reading: ReadingRules) -> Iterator[io.TextIOWrapper]:
    """Open a file as text with its line ends. Raises `UsageError` at bytes that are not in the encoding."""
    encoding = "utf-8-sig" if reading.encoding == "utf-8" else reading.encoding  # a byte order mark is no record
    try:
        with open_decompressed(path) as stream, io.TextIOWrapper(stream, encoding=encoding, newline="") as text:
            yield text
    except UnicodeError as error:
        raise UsageError(f"{path} is not {reading.encoding}: {error}; {_remedy(path)}") from error


def _remedy(path: Path) -> str:
    """Return which encoding to set, as far as the first bytes tell."""
    with open_decompressed(path) as stream:
        marked = marked_encoding(stream.read(_BEGINNING_BYTES))
    return f"set data.encoding={marked}" if marked else "set data.encoding"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


_READERS: dict[str, Callable[[Path, ReadingRules], Iterator[str | None]]] = {
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".json": _array,
    ".csv": _table,
    ".tsv": _table,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
