"""Columns of numbers in a CSV file whose first line names them, each by any of several names.

Names are compared in lower case. A file that a spreadsheet wrote may begin with a byte order mark. Empty lines do not
count as rows, and errors name the line of the file.
"""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.config.yaml_text import read_bytes
from assay.errors import UsageError, short_text

_MOST_BYTES = 1 << 26
_MOST_LINES, _LONGEST_LINE = 200_000, 100_000
"""A row takes half a kilobyte of memory, and a field a tenth of that."""
_SEPARATORS = {";": "semicolons", "\t": "tabs"}
"""Separators that spreadsheets write in place of commas."""


@dataclass(frozen=True)
class PointsTable:
    """Rows of a file, each with the number of its line."""

    path: Path
    rows: list[dict[str, str]]
    lines: list[int]

    def headings(self, names: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Return the heading of each kind of column that the file has, from the names by which it is known.

        Raises `UsageError` if several columns are of one kind.
        """
        found = {kind: self._heading(known) for kind, known in names.items()}
        return {kind: name for kind, name in found.items() if name is not None}

    def _heading(self, names: Sequence[str]) -> str | None:
        found = [one for one in self.rows[0] if one is not None and one.strip().lower() in names]
        if len(found) > 1:
            raise UsageError(
                f"{self.path} has the columns {' and '.join(found)} for one quantity; leave one of them out"
            )
        return found[0] if found else None

    def numbers(self, name: str, least: float, most: float, convert: Callable[[str], float] = float) -> list[float]:
        """Return a column as numbers. A conversion raises `ValueError` for a text that is none.

        Raises `UsageError` for a field that is no number, or whose number is not within the limits.
        """
        return [
            _number(row[name], name, f"{self.path}, line {line}", (least, most), convert)
            for row, line in zip(self.rows, self.lines, strict=True)
        ]


def read_table(path: Path, content: str) -> PointsTable:
    """Return the rows of a file; `content` says in an error what it should have.

    Raises `UsageError` if it cannot be read, has no rows, has two columns of one name, or has a row with more fields
    than names.
    """
    reader = csv.DictReader(_lines(_text(path, content), path))
    rows, lines = [], []
    try:
        for row in reader:
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise UsageError(f"{path} is no CSV file ({error}); name one of {content}") from error
    if not rows:
        raise UsageError(f"{path} has no {content}; its first line names the columns, and each further line is a row")
    _check_names(reader.fieldnames or (), path)
    for row, line in zip(rows, lines, strict=True):
        if None in row:
            raise UsageError(f"{path}, line {line} has more fields than the first line has names")
    return PointsTable(path, rows, lines)


def _text(path: Path, content: str) -> str:
    try:
        raw = read_bytes(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name a CSV file of {content}") from error
    if raw is None:
        raise UsageError(f"{path} is longer than 64 MiB; name a CSV file of {content}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}; save it as CSV in UTF-8") from error


def _lines(text: str, path: Path) -> Iterator[str]:
    """Yield the lines of a text. Raises `UsageError` if there are more, or longer ones, than a table may have."""
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if number > _MOST_LINES or len(line) > _LONGEST_LINE:
            raise UsageError(
                f"{path} has more than {_MOST_LINES:,} lines, or a line of more than {_LONGEST_LINE:,} characters; "
                "give fewer points"
            )
        yield line


def _check_names(names: Sequence[str], path: Path) -> None:
    """Raise `UsageError` for a heading that is not separated by commas, and for a name that it has twice."""
    for separator, word in _SEPARATORS.items():
        if len(names) == 1 and separator in names[0]:
            raise UsageError(f"{path} separates its columns by {word}; save it as CSV with commas")
    cleaned = [name.strip().lower() for name in names]
    twice = next((name for name in cleaned if name and cleaned.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{path} has the column {short_text(twice)} twice; leave one of them out")


def _number(
    text: str | None, name: str, place: str, limits: tuple[float, float], convert: Callable[[str], float]
) -> float:
    if not (text or "").strip():
        raise UsageError(f"{place}: the column {name} is empty; fill it, or leave the row of that run out")
    try:
        value = convert(text or "")
    except ValueError:
        raise UsageError(
            f"{place}: the column {name} has {short_text(text or '')}; write a number such as 1e7"
        ) from None
    least, most = limits
    if not least <= value <= most:
        raise UsageError(
            f"{place}: {name}={value:g} is not possible; write the plain number, from {least:g} to {most:g}"
        )
    return value
